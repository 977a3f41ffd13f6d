"""GSS-greedy (Aljundi et al., 2019): keep exemplars whose gradients differ."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from oclgrid.trainables.configs.gss import GssConfig
from oclgrid.trainables.maths.flat import flat
from oclgrid.trainables.maths.similarity import largest_cosine
from oclgrid.trainables.methods.er import Er
from oclgrid.trainables.registry import method
from oclgrid.trainables.stream import Batch

FIRST_SCORE = 0.1
"""Of images that enter an empty memory, which has nothing to compare them with."""


@method(GssConfig)
class Gss(Er):
    """ER whose memory prefers images with gradients unlike those it holds."""

    config: GssConfig

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._scores = torch.zeros(self.memory.size)

    def remember(self, incoming: Batch) -> None:
        """Append while there is room; then replace similar exemplars by dissimilar images."""
        self.net.eval()  # with running BatchNorm statistics an image has a gradient of its own
        if self.memory.filled < self.memory.size:
            self._append(incoming)
        elif self.memory.size:
            self._replace(incoming)
        else:
            self.memory.seen += len(incoming)
        self.net.train()

    def _append(self, incoming: Batch) -> None:
        room = min(len(incoming), self.memory.size - self.memory.filled)
        new = self.stream.fetch(incoming.indices[:room])
        scores = torch.full((room,), FIRST_SCORE)
        if self.memory.filled:
            known = torch.stack(list(self._memory_gradients()))
            scores = largest_cosine(self._own_gradients(new), known).cpu()
        self._scores[self.memory.filled : self.memory.filled + room] = scores
        self.memory.append(new.indices, new.labels.cpu())
        self.memory.seen += len(incoming) - room

    def _replace(self, incoming: Batch) -> None:
        self.memory.seen += len(incoming)
        gradient, parts = self._gradient(incoming)[None], []
        for part in self._memory_gradients():
            # One part that the batch does not oppose decides; most often it is the first.
            if largest_cosine(gradient, part[None]).item() >= 0:
                return
            parts.append(part)
        known = torch.stack(parts)
        spread = self._scores.max() - self._scores.min()
        chances = (self._scores - self._scores.min()) / (spread + 0.01)
        count = min(len(incoming), int((chances > 0).sum()))
        if count == 0:  # all exemplars are equally similar: none is a candidate to go
            return
        slots = torch.multinomial(chances, count, generator=self.memory_rng)
        new = self.stream.fetch(incoming.indices[:count])
        scores = largest_cosine(self._own_gradients(new), known).cpu()
        theirs, ours = (self._scores[slots] + 1) / 2, (scores + 1) / 2
        goes = torch.rand(count, generator=self.memory_rng) < theirs / (ours + theirs)
        self.memory.write(slots[goes], new.indices[goes], new.labels.cpu()[goes])
        self._scores[slots[goes]] = scores[goes]

    def _memory_gradients(self) -> Iterator[Tensor]:
        """Draw random disjoint parts of the memory; yield the gradient of each when asked."""
        size = min(self.config.subset_size, self.memory.filled)
        count = min(self.config.subsets, self.memory.filled // size)
        order = torch.randperm(self.memory.filled, generator=self.memory_rng)[: size * count]
        return (self._gradient(self.recall(slots)) for slots in order.split(size))

    def _gradient(self, batch: Batch) -> Tensor:
        """Return the gradient of a batch's mean loss, as one vector."""
        logits = self.net["softmax"](self.net["backbone"](batch.images))
        return flat(self.gradients(F.cross_entropy(logits, batch.labels)))

    def _own_gradients(self, batch: Batch) -> Tensor:
        """Return the gradient of each image's own loss, one a row, without a loop over images."""
        whole = nn.Sequential(OrderedDict(self.net.items()))
        parameters = {name: p.detach() for name, p in whole.named_parameters()}

        def loss(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            logits: Tensor = functional_call(whole, values, (image[None],))
            return F.cross_entropy(logits, label[None])

        found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, batch.images, batch.labels)
        return torch.cat([g.flatten(1) for g in found.values()], dim=1)

    def state(self) -> dict[str, Any]:
        """Return the base's state with the score of each exemplar."""
        return {**super().state(), "scores": self._scores.clone()}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        super().load(state)
        self._scores = state["scores"].clone()
