"""What may be set of Identity, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from oclgrid.trainables.configs.sdaf import SdafConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class SdafIdentityConfig(SdafConfig):
    """Defaults of Identity."""

    about: ClassVar[str] = "ablation of SDAF: no rotations"
    views_per_image: ClassVar[int] = 2
    name: str = "sdaf-identity"
    updates_per_batch: int = 4
    rotation_count: Literal[1, 4] = 1
    """Reading: S is the identity, so K = 1 and I = 4 (20 x 2 x 4 = 160 images); the other reading,
    four copies of each image, would cost the same and add nothing."""
