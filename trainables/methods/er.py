"""Experience replay (Chaudhry et al., 2019): the plainest row of the tables."""

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from oclgrid.trainables.method import Method, join
from oclgrid.trainables.registry import method
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import MethodConfig
from oclgrid.trainables.stream import Batch


@dataclass(frozen=True, kw_only=True, slots=True)
class ErConfig(MethodConfig):
    """Defaults of ER."""

    name: str = "er"
    updates_per_batch: int = 8
    """I of Algorithm 1. Sec. 4.3 gives eight to methods that use a single view."""
    composition: Literal["separate", "union"] = "separate"
    """Reading: the reference adds two means from separate forward passes, so that BatchNorm sees
    incoming and memory batch apart; Algorithm 1 could also mean one pass over their union."""


def require_separate(config: ErConfig) -> None:
    """Refuse the union where a method needs the incoming batch's gradient by itself."""
    if config.composition != "separate":
        raise SpecError(f"{config.name}.composition must be separate, got {config.composition!r}")


@method(ErConfig)
class Er(Method[ErConfig]):
    """Cross-entropy over the incoming batch and a uniform draw from memory."""

    about = "Chaudhry et al., On Tiny Episodic Memories in Continual Learning, 2019"

    def heads(self) -> dict[str, nn.Module]:
        """Return one linear layer to all classes."""
        return {"softmax": nn.Linear(self.features_out, self.info.classes)}

    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Step on the sum of the mean losses of both batches."""
        if self.config.composition == "union":
            self.step(self.loss(join(incoming, replay)))
        elif replay is None:
            self.step(self.loss(incoming))
        else:
            self.step(self.loss(incoming) + self.loss(replay))

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of a batch over all outputs."""
        return F.cross_entropy(self.net["softmax"](self.features(batch.images)), batch.labels)
