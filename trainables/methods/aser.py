"""ASER (Shim et al., 2021): Shapley values decide what to replay and what to keep."""

import torch
from torch import Tensor

from oclgrid.trainables.configs.aser import AserConfig
from oclgrid.trainables.maths.shapley import knn_shapley
from oclgrid.trainables.methods.er import Er
from oclgrid.trainables.predictor import evaluating
from oclgrid.trainables.registry import method
from oclgrid.trainables.stream import Batch


@method(AserConfig)
class Aser(Er):
    """ER with adversarial Shapley retrieval and cooperative Shapley update."""

    config: AserConfig

    def retrieve(self, incoming: Batch) -> Batch | None:
        """Return exemplars that help to tell the memory apart and mislead about the new batch."""
        if self.memory.seen <= self.memory.size or self.memory.filled == 0:
            return super().retrieve(incoming)
        candidates = self._balanced_slots(exclude=None)
        partners = self._balanced_slots(exclude=candidates)
        batch, friends = self.recall(candidates), self.recall(partners)
        # One pass for all three sets: in eval mode images do not influence each other.
        features = self._features(batch, friends, incoming)
        adversarial = self._values(features[2], incoming.labels, features[0], batch.labels)
        score = self._score(
            adversarial, self._values(features[1], friends.labels, features[0], batch.labels)
        )
        best = score.topk(min(self.config.memory_batch_size, len(score))).indices.cpu()
        return self.recall(candidates[best])

    def _score(self, adversarial_EN: Tensor, cooperative_EN: Tensor) -> Tensor:
        if self.config.variant == "neg_sv":
            return -adversarial_EN.sum(0)
        if len(cooperative_EN) == 0:  # no exemplar is left over to cooperate with
            cooperative_EN = torch.zeros_like(adversarial_EN[:1])
        if self.config.variant == "asv":
            return cooperative_EN.amax(0) - adversarial_EN.amin(0)
        return cooperative_EN.mean(0) - adversarial_EN.mean(0)

    def remember(self, incoming: Batch) -> None:
        """Fill the memory; once full, keep what adds most to classifying a balanced sample."""
        labels = incoming.labels.cpu()
        taken = self.memory.append(incoming.indices, labels)
        if taken == len(incoming) or self.memory.size == 0:
            self.memory.seen += len(incoming) - taken
            return
        new = self.stream.fetch(incoming.indices[taken:])
        balanced = self._balanced_slots(exclude=None)
        free = torch.ones(self.memory.filled, dtype=torch.bool)
        free[balanced] = False
        pool = torch.nonzero(free).squeeze(1)
        wanted = self.config.samples_per_class * self.info.classes
        slots = pool[torch.randperm(len(pool), generator=self.memory_rng)[:wanted]]
        references, candidates = self.recall(balanced), self.recall(slots)
        minority = self._minority(new.labels.cpu()).to(self.device)
        features = self._features(references, candidates, new)
        values = self._values(
            torch.cat([features[0], features[2][minority]]),
            torch.cat([references.labels, new.labels[minority]]),
            torch.cat([features[1], features[2]]),
            torch.cat([candidates.labels, new.labels]),
        ).sum(0)
        order = values.argsort(descending=True, stable=True).cpu()
        kept, dropped = order[: len(slots)], order[len(slots) :]
        entering = kept[kept >= len(slots)] - len(slots)
        leaving = slots[dropped[dropped < len(slots)]]
        self.memory.write(leaving, new.indices[entering], new.labels.cpu()[entering])
        self.memory.seen += len(new)

    def _minority(self, labels: Tensor) -> Tensor:
        """Return which images belong to a class whose share of the memory is below a random bar."""
        bar = torch.rand((), generator=self.memory_rng) / self.info.classes
        counts = torch.bincount(
            self.memory.labels[: self.memory.filled], minlength=self.info.classes
        )
        return counts[labels] / self.memory.size < bar

    def _balanced_slots(self, *, exclude: Tensor | None) -> Tensor:
        """Return up to N_s slots of each class in memory, drawn uniformly."""
        order = torch.randperm(self.memory.filled, generator=self.memory_rng)
        if exclude is not None:
            is_free = torch.ones(self.memory.filled, dtype=torch.bool)
            is_free[exclude] = False
            order = order[is_free[order]]
        labels = self.memory.labels[order]
        # Position of each slot among those of its class, in the drawn order.
        one_hot = torch.nn.functional.one_hot(labels, self.info.classes)
        position = one_hot.cumsum(0).gather(1, labels[:, None]).squeeze(1)
        return order[position <= self.config.samples_per_class]

    def _features(self, *batches: Batch) -> list[Tensor]:
        images = torch.cat([b.images for b in batches])
        with evaluating(self.net):
            features: Tensor = self.net["backbone"](images)
        return list(features.split([len(b) for b in batches]))

    def _values(
        self, points: Tensor, labels: Tensor, candidates: Tensor, candidate_labels: Tensor
    ) -> Tensor:
        return knn_shapley(
            points,
            labels,
            candidates,
            candidate_labels_N=candidate_labels,
            neighbours=self.config.neighbours,
        )
