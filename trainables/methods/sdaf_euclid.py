"""SDAF-Euclid, an ablation: SDAF's network, classified by Euclidean distance."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from oclgrid.trainables.methods.sdaf import Sdaf, SdafConfig
from oclgrid.trainables.registry import method


@dataclass(frozen=True, kw_only=True, slots=True)
class SdafEuclidConfig(SdafConfig):
    """Defaults of Euclid: only inference differs, so a trained SDAF cell serves it too."""

    trains_as: ClassVar[str] = "sdaf"
    name: str = "sdaf-euclid"
    classifier: Literal["softmax", "ncm-euclid", "ncm-mahalanobis"] = "ncm-euclid"


@method(SdafEuclidConfig)
class SdafEuclid(Sdaf):
    """SDAF with the identity in place of the inverse covariance."""

    about = "ablation of SDAF: Euclidean centres; needs no training of its own"
