"""Experience replay (Chaudhry et al., 2019): the plainest row of the tables."""

import torch.nn.functional as F
from torch import Tensor, nn

from oclgrid.trainables.configs.er import ErConfig
from oclgrid.trainables.method import Method, join
from oclgrid.trainables.registry import method
from oclgrid.trainables.stream import Batch


@method(ErConfig)
class Er(Method[ErConfig]):
    """Cross-entropy over the incoming batch and a uniform draw from memory."""

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
