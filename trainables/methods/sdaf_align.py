"""SDAF-Align, an ablation: rotated views keep the label of their image."""

from dataclasses import dataclass
from typing import Literal

from oclgrid.trainables.methods.sdaf import Sdaf, SdafConfig
from oclgrid.trainables.registry import method


@dataclass(frozen=True, kw_only=True, slots=True)
class SdafAlignConfig(SdafConfig):
    """Defaults of Align."""

    name: str = "sdaf-align"
    labels: Literal["extended", "original"] = "original"


@method(SdafAlignConfig)
class SdafAlign(Sdaf):
    """SDAF whose softmax has one output per class; its centres still tell rotations apart."""

    about = "ablation of SDAF: rotations are views, not classes of their own"
