"""Supervised contrastive replay (Mai et al., 2021): SupCon to learn, NCM to predict."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oclgrid.trainables.maths.contrast import supcon
from oclgrid.trainables.method import Method, join
from oclgrid.trainables.network import mlp
from oclgrid.trainables.registry import method
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import MethodConfig
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import SCR, ViewSeries, view


@dataclass(frozen=True, kw_only=True, slots=True)
class ScrConfig(MethodConfig):
    """Defaults of SCR.

    Reading: SCR's own paper draws 100 exemplars with one update and a review of the memory; here
    it draws 10 with four updates and no review, as Sec. 4.3's rule of equal cost has it.
    """

    name: str = "scr"
    updates_per_batch: int = 4
    """I of Algorithm 1. Sec. 4.3 gives four to methods that use two views."""
    classifier: Literal["softmax", "ncm-euclid", "ncm-mahalanobis"] = "ncm-euclid"
    normalise_features: bool = True
    temperature: float = 0.1
    """Of the contrastive loss. Reading: the reference's command line says 0.07, its configs 0.1."""
    views: ViewSeries = SCR
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


@method(ScrConfig)
class Scr(Method[ScrConfig]):
    """SupCon over incoming and memory images, each with one random view of itself (Eq. 3)."""

    about = "Mai et al., Supervised Contrastive Replay, CVPR Workshops 2021"
    views_per_image = 2

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
        return [images, view(self.config.views, images, self.view_rng)]

    def _loss(self, batch: Batch) -> Tensor:
        # One forward pass per set of views: BatchNorm sees them apart, as in the reference.
        z = [self.net["contrastive"](self.features(v)) for v in self.views(batch.images)]
        z_NVP = F.normalize(torch.stack(z, dim=1), dim=2)
        return supcon(z_NVP, batch.labels, self.config.temperature)
