"""What the backbones of one training make of test images, kept for cells that share them."""

import time
from collections.abc import Callable

from torch import Tensor

LIMIT_BYTES = 256 * 2**20
"""How much is kept; the stages of a CIFAR cell take a third of it."""


class KnownFeatures:
    """Features of batches of test images by the networks of one training, the last asked for."""

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._training_id, self._bytes, self._limit = "", 0, limit_bytes
        self._known: dict[tuple[int, int], tuple[Tensor, float]] = {}

    def of(
        self, training_id: str, stage: int, batch: int, compute: Callable[[], Tensor]
    ) -> tuple[Tensor, float]:
        """Return the features of a batch, and how many seconds knowing them has saved."""
        if training_id != self._training_id:
            self._training_id, self._bytes = training_id, 0
            self._known.clear()
        if (stage, batch) in self._known:
            return self._known[stage, batch]
        started = time.perf_counter()
        features = compute()
        kept = features.cpu()
        if self._bytes + kept.nbytes <= self._limit:
            self._bytes += kept.nbytes
            self._known[stage, batch] = kept, time.perf_counter() - started
        return features, 0.0
