"""What may be set of Align, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from oclgrid.trainables.configs.sdaf import SdafConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class SdafAlignConfig(SdafConfig):
    """Defaults of Align."""

    about: ClassVar[str] = "ablation of SDAF: rotations are views, not classes of their own"
    name: str = "sdaf-align"
    labels: Literal["extended", "original"] = "original"
