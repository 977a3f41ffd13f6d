"""What may be set of SCR, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import SCR, Colours, ViewSeries
from oclgrid.trainables.spec import MethodConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ScrConfig(MethodConfig):
    """Defaults of SCR.

    Reading: SCR's own paper draws 100 exemplars with one update and a review of the memory; here
    it draws 10 with four updates and no review, as Sec. 4.3's rule of equal cost has it.
    """

    about: ClassVar[str] = "Mai et al., Supervised Contrastive Replay, CVPR Workshops 2021"
    views_per_image: ClassVar[int] = 2
    name: str = "scr"
    updates_per_batch: int = 4
    """I of Algorithm 1. Sec. 4.3 gives four to methods that use two views."""
    classifier: Literal["softmax", "ncm-euclid", "ncm-mahalanobis"] = "ncm-euclid"
    normalise_features: bool = True
    temperature: float = 0.1
    """Of the contrastive loss. Reading: the reference's command line says 0.07, its configs 0.1."""
    views: ViewSeries = SCR
    colours: Colours = "torchvision"
    """Reading: the reference has kornia's colour jitter; this paper names torchvision's."""
    review: bool = False
    """Whether each stage ends with a pass over the memory at a tenth of the rate."""

    def __post_init__(self) -> None:
        MethodConfig.__post_init__(self)
        if self.classifier == "softmax":
            raise SpecError(f"{self.name}.classifier must be a nearest-centre one, got 'softmax'")
        if not 0.001 <= self.temperature <= 1000:
            raise SpecError(
                f"{self.name}.temperature must lie in [0.001, 1000], got {self.temperature}"
            )
