"""Maximally interfered retrieval (Aljundi et al., 2019): replay what the next step would hurt."""

import torch
import torch.nn.functional as F
from torch import Tensor

from oclgrid.trainables.configs.mir import MirConfig
from oclgrid.trainables.methods.er import Er
from oclgrid.trainables.registry import method
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.virtual import after_step


@method(MirConfig)
class Mir(Er):
    """ER whose replay is what a step on the incoming batch alone would make worst."""

    config: MirConfig

    def retrieve(self, incoming: Batch) -> Batch | None:
        """Return the candidates whose loss a virtual step on the incoming batch raises most."""
        self._incoming_loss = self.loss(incoming)
        self._gradients = self.gradients(self._incoming_loss)
        slots = self.draw_slots(self.config.candidates)
        if len(slots) == 0:
            return None
        worst = self.interference(self.recall(slots)).topk(
            min(self.config.memory_batch_size, len(slots))
        )
        return self.recall(slots[worst.indices.cpu()])

    @torch.no_grad()
    def interference(self, candidates: Batch) -> Tensor:
        """Return how much the virtual step raises the loss of each candidate.

        Reading: eval mode would be cleaner; the reference scores in training mode, and its
        pass with the present weights moves their BatchNorm statistics. So does ours.
        """
        virtual = after_step(self.net, self._gradients, self.config.learning_rate)
        images, labels = candidates.images, candidates.labels
        later = virtual("softmax", virtual("backbone", images))
        now = self.net["softmax"](self.net["backbone"](images))
        return F.cross_entropy(later, labels, reduction="none") - F.cross_entropy(
            now, labels, reduction="none"
        )

    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Step on the sum of both losses; the incoming batch's gradient is there already."""
        if replay is None:
            self.descend(self._gradients, self._incoming_loss)
            return
        loss = self.loss(replay)
        total = [a + b for a, b in zip(self._gradients, self.gradients(loss), strict=True)]
        self.descend(total, self._incoming_loss + loss)
