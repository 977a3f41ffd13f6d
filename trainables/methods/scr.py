"""Supervised contrastive replay (Mai et al., 2021): SupCon to learn, NCM to predict."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oclgrid.trainables.configs.scr import ScrConfig
from oclgrid.trainables.maths.contrast import supcon
from oclgrid.trainables.method import Method, join
from oclgrid.trainables.network import mlp
from oclgrid.trainables.registry import method
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import view


@method(ScrConfig)
class Scr(Method[ScrConfig]):
    """SupCon over incoming and memory images, each with one random view of itself (Eq. 3)."""

    def heads(self) -> dict[str, nn.Module]:
        """Return G, the contrastive head."""
        return {"contrastive": mlp(self.features_out, self.features_out, 128)}

    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Step on the contrastive loss; with an empty memory, not at all, as in the reference."""
        if replay is not None:
            self.step(self._loss(join(replay, incoming)))

    def end_stage(self) -> None:
        """Review the memory, where asked for."""
        if not self.config.review:
            return
        order = torch.randperm(self.memory.filled, generator=self.memory_rng)
        for slots in order.split(self.config.memory_batch_size):
            if len(slots) == self.config.memory_batch_size:
                batch = self.stream.fetch(self.memory.indices[slots])
                self.step(self._loss(batch), scale=0.1)

    def views(self, images: Tensor) -> list[Tensor]:
        """Return the views that are contrasted: the image itself and a random one."""
        return [images, self.random_view(images)]

    def random_view(self, images: Tensor) -> Tensor:
        """Return a random view of each image."""
        return view(self.config.views, images, self.view_rng, colours=self.config.colours)

    def _loss(self, batch: Batch) -> Tensor:
        # One forward pass per set of views: BatchNorm sees them apart, as in the reference.
        z = [self.net["contrastive"](self.features(v)) for v in self.views(batch.images)]
        z_NVP = F.normalize(torch.stack(z, dim=1), dim=2)
        return supcon(z_NVP, batch.labels, self.config.temperature)
