"""SDAF-Align, an ablation: rotated views keep the label of their image."""

from oclgrid.trainables.configs.sdaf_align import SdafAlignConfig
from oclgrid.trainables.methods.sdaf import Sdaf
from oclgrid.trainables.registry import method


@method(SdafAlignConfig)
class SdafAlign(Sdaf):
    """SDAF whose softmax has one output per class; its centres still tell rotations apart."""
