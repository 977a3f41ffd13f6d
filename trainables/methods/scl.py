"""SCL (Khosla et al., 2020, in the online setting): SCR with two random views of each image."""

from torch import Tensor

from oclgrid.trainables.configs.scl import SclConfig
from oclgrid.trainables.methods.scr import Scr
from oclgrid.trainables.registry import method


@method(SclConfig)
class Scl(Scr):
    """SupCon over two random views (Eq. 2); the image itself is not in the loss."""

    def views(self, images: Tensor) -> list[Tensor]:
        """Return the views that are contrasted: two random ones."""
        return [self.random_view(images) for _ in range(2)]
