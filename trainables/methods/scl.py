"""SCL (Khosla et al., 2020, in the online setting): SCR with two random views of each image."""

from dataclasses import dataclass

from torch import Tensor

from oclgrid.trainables.methods.scr import Scr, ScrConfig
from oclgrid.trainables.registry import method
from oclgrid.trainables.views import view


@dataclass(frozen=True, kw_only=True, slots=True)
class SclConfig(ScrConfig):
    """Defaults of SCL: those of SCR, from which it differs in the views only."""

    name: str = "scl"


@method(SclConfig)
class Scl(Scr):
    """SupCon over two random views (Eq. 2); the image itself is not in the loss."""

    about = "Khosla et al., Supervised Contrastive Learning, NeurIPS 2020"

    def views(self, images: Tensor) -> list[Tensor]:
        """Return the views that are contrasted: two random ones."""
        return [view(self.config.views, images, self.view_rng) for _ in range(2)]
