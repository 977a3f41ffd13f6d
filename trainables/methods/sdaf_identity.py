"""SDAF-Identity, an ablation: no rotations, four updates for the same cost."""

from dataclasses import dataclass
from typing import Literal

from oclgrid.trainables.methods.sdaf import Sdaf, SdafConfig
from oclgrid.trainables.registry import method


@dataclass(frozen=True, kw_only=True, slots=True)
class SdafIdentityConfig(SdafConfig):
    """Defaults of Identity."""

    name: str = "sdaf-identity"
    updates_per_batch: int = 4
    rotation_count: Literal[1, 4] = 1
    """Reading: S is the identity, so K = 1 and I = 4 (20 x 2 x 4 = 160 images); the other reading,
    four copies of each image, would cost the same and add nothing."""


@method(SdafIdentityConfig)
class SdafIdentity(Sdaf):
    """SDAF with K = 1: loss, balancing and Mahalanobis centres as before."""

    about = "ablation of SDAF: no rotations"
    views_per_image = 2
