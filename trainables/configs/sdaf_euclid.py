"""What may be set of Euclid, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from oclgrid.trainables.configs.sdaf import SdafConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class SdafEuclidConfig(SdafConfig):
    """Defaults of Euclid: only inference differs, so a trained SDAF cell serves it too."""

    about: ClassVar[str] = "ablation of SDAF: Euclidean centres; needs no training of its own"
    trains_as: ClassVar[str] = "sdaf"
    name: str = "sdaf-euclid"
    classifier: Literal["softmax", "ncm-euclid", "ncm-mahalanobis"] = "ncm-euclid"
