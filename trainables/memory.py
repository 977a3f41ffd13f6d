"""The exemplar memory: positions in the training set, and the policies that fill and read it."""

from typing import Any

import torch
from torch import Tensor


class Memory:
    """At most ``size`` exemplars, kept as positions in the training set with their labels."""

    def __init__(self, size: int) -> None:
        self.indices = torch.zeros(size, dtype=torch.int64)
        self.labels = torch.zeros(size, dtype=torch.int64)
        self.filled = 0
        """Slots in use; they come first."""
        self.seen = 0
        """Images offered so far."""

    @property
    def size(self) -> int:
        """M: how many exemplars fit."""
        return len(self.indices)

    def write(self, slots: Tensor, indices: Tensor, labels: Tensor) -> None:
        """Put images into slots, in order: of two images for one slot the later one stays."""
        for slot, index, label in zip(
            slots.tolist(), indices.tolist(), labels.tolist(), strict=True
        ):
            self.indices[slot], self.labels[slot] = index, label

    def append(self, indices: Tensor, labels: Tensor) -> int:
        """Put images into free slots while there are any; return how many were taken."""
        count = min(len(indices), self.size - self.filled)
        free = torch.arange(self.filled, self.filled + count)
        self.write(free, indices[:count], labels[:count])
        self.filled += count
        self.seen += count
        return count

    def state(self) -> dict[str, Any]:
        """Return all there is to keep."""
        return {
            "indices": self.indices[: self.filled].clone(),
            "labels": self.labels[: self.filled].clone(),
            "seen": self.seen,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        self.filled, self.seen = len(state["indices"]), state["seen"]
        self.indices[: self.filled] = state["indices"]
        self.labels[: self.filled] = state["labels"]


def reservoir_update(
    memory: Memory, indices: Tensor, labels: Tensor, *, generator: torch.Generator
) -> None:
    """Offer a batch to the memory so that every image seen is kept with equal probability.

    Reading: a textbook reservoir accepts the i-th image of a batch with M / (seen + i); the
    reference uses the count before the batch for all of it, and so do we (at most 10 / seen apart).
    """
    taken = memory.append(indices, labels)
    rest = len(indices) - taken
    if rest == 0 or memory.size == 0:
        memory.seen += rest
        return
    draws = torch.rand(rest, generator=generator, dtype=torch.float64)
    slots = (draws * memory.seen).long()
    hit = slots < memory.size
    memory.write(slots[hit], indices[taken:][hit], labels[taken:][hit])
    memory.seen += rest


def uniform_retrieval(
    memory: Memory, count: int, *, generator: torch.Generator, below: int | None = None
) -> Tensor:
    """Return up to ``count`` distinct slots, drawn uniformly.

    Args:
        memory: Where to draw from.
        count: How many are wanted; with fewer in memory, all are returned.
        generator: Source of the draw.
        below: Draw only labels below this (classes of earlier stages).
    """
    slots = torch.arange(memory.filled)
    if below is not None:
        slots = slots[memory.labels[: memory.filled] < below]
    return slots[torch.randperm(len(slots), generator=generator)[:count]]
