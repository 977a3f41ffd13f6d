"""Fine-tuning: no memory at all, the lower bound of every table."""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import nn

from oclgrid.trainables.method import Method
from oclgrid.trainables.registry import method
from oclgrid.trainables.spec import MethodConfig
from oclgrid.trainables.stream import Batch


@dataclass(frozen=True, kw_only=True, slots=True)
class FinetuneConfig(MethodConfig):
    """Defaults of fine-tuning."""

    about: ClassVar[str] = "an example of a method in a package of its own"
    stores: ClassVar[str] = "nothing"
    name: str = "finetune"
    updates_per_batch: int = 8


@method(FinetuneConfig)
class Finetune(Method[FinetuneConfig]):
    """Cross-entropy on the incoming batch, nothing else."""

    def heads(self) -> dict[str, nn.Module]:
        """Return one linear layer to all classes."""
        return {"softmax": nn.Linear(self.features_out, self.info.classes)}

    def retrieve(self, incoming: Batch) -> Batch | None:
        """Return nothing: there is no memory."""
        return None

    def remember(self, incoming: Batch) -> None:
        """Keep nothing."""

    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Step on the incoming batch."""
        features = self.features(incoming.images)
        self.step(F.cross_entropy(self.net["softmax"](features), incoming.labels))
