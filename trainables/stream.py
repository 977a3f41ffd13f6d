"""The stream of one cell: which images arrive in which stage, and what they are tested on."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oclgrid.trainables.datasets import Dataset
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.sources import Images, Splits
from oclgrid.trainables.spec import Arrival, CellSpec

VALIDATION_SHARE = 0.1
"""Part of each class's training images that the validation protocol holds out."""


def class_sequence(classes: int, order: int, arrival: Arrival = "drawn") -> tuple[int, ...]:
    """Return the class ids in the order in which they arrive.

    A drawn order is sorted by a digest, so that it is the same for every method, memory size,
    machine and library version, for ever.
    """
    if arrival == "natural":
        return tuple(range(classes))

    def key(c: int) -> bytes:
        return hashlib.sha256(f"class order {order}, class {c} of {classes}".encode()).digest()

    return tuple(sorted(range(classes), key=key))


@dataclass(frozen=True, slots=True)
class Batch:
    """Images with their labels; a label is the arrival rank of the class, from 0."""

    images: Tensor
    """N x 3 x H x W floats in [0, 1], channels last in memory."""
    labels: Tensor
    indices: Tensor
    """Positions in the training set, on the CPU."""

    def __len__(self) -> int:
        return len(self.indices)


class Stream:
    """The images of one cell in their order of arrival."""

    def __init__(
        self, spec: CellSpec, info: Dataset, splits: Splits, *, device: torch.device
    ) -> None:
        self._spec, self._info, self._device = spec, info, device
        self.sequence = class_sequence(info.classes, spec.class_order, spec.arrival)
        ranks = np.empty(info.classes, dtype=np.int64)
        ranks[list(self.sequence)] = np.arange(info.classes)
        self._train, self._train_ranks = splits.train.images, ranks[splits.train.labels]
        arriving, held_out = self._split(splits.train)
        self._arriving = arriving
        if spec.protocol == "validation":
            self._eval, self._eval_ranks = self._train[held_out], self._train_ranks[held_out]
        else:
            self._eval, self._eval_ranks = splits.test.images, ranks[splits.test.labels]
        shortest = min(
            len(self._stage_indices(t)) // spec.method.batch_size for t in range(info.stages)
        )
        if shortest < 1 or len(np.unique(self._eval_ranks)) < info.classes:
            raise SpecError(
                f"stream_fraction {spec.stream_fraction} leaves a stage of {info.name} without a "
                f"batch of {spec.method.batch_size} or a class without a test image; raise it"
            )

    def _split(self, train: Images) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positions that arrive and those held out, chosen by the seed alone."""
        arriving, held_out = [], []
        for c in range(self._info.classes):
            generator = np.random.Generator(np.random.PCG64([self._spec.seed, c]))
            positions = generator.permutation(np.flatnonzero(train.labels == c))
            cut = round(len(positions) * VALIDATION_SHARE)
            if self._spec.protocol == "test":
                cut = 0
            count = round((len(positions) - cut) * self._spec.stream_fraction)
            held_out.append(positions[:cut])
            arriving.append(positions[cut : cut + count])
        return np.sort(np.concatenate(arriving)), np.sort(np.concatenate(held_out))

    def _stage_indices(self, stage: int) -> npt.NDArray[np.int64]:
        per_stage = self._info.classes_per_stage
        is_new = self._train_ranks[self._arriving] // per_stage == stage
        indices: npt.NDArray[np.int64] = self._arriving[is_new]
        return indices

    def batches_in(self, stage: int) -> int:
        """Return how many whole batches arrive in a stage."""
        return len(self._stage_indices(stage)) // self._spec.method.batch_size

    def batches(self, stage: int) -> Iterator[Batch]:
        """Yield the incoming batches of a stage once, shuffled; a short last one is dropped."""
        for chunk in self.arrivals(stage).split(self._spec.method.batch_size):
            yield self.fetch(chunk)

    def arrivals(self, stage: int) -> Tensor:
        """Return the positions of the images of a stage in their order of arrival."""
        indices = torch.from_numpy(self._stage_indices(stage))
        shuffle = torch.randperm(len(indices), generator=self._spec.generator("stream", stage))
        return indices[shuffle][: self.batches_in(stage) * self._spec.method.batch_size]

    def fetch(self, indices: Tensor) -> Batch:
        """Return training images by position."""
        images = to_float(self._train[indices.numpy()], self._device)
        return Batch(images, self.labels(indices).to(self._device), indices)

    def labels(self, indices: Tensor) -> Tensor:
        """Return the arrival ranks of training images by position, on the CPU."""
        return torch.from_numpy(self._train_ranks[indices.numpy()])

    def evaluation(self, seen: int, size: int = 250) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and labels to test on, of the first ``seen`` classes."""
        wanted = np.flatnonzero(self._eval_ranks < seen)
        for start in range(0, len(wanted), size):
            chunk = wanted[start : start + size]
            labels = torch.from_numpy(self._eval_ranks[chunk])
            yield to_float(self._eval[chunk], self._device), labels


def to_float(images: npt.NDArray[np.uint8], device: torch.device) -> Tensor:
    """Return N x H x W x 3 bytes as N x 3 x H x W floats in [0, 1], channels last in memory."""
    pixels = torch.from_numpy(images).to(device).permute(0, 3, 1, 2)
    return pixels.to(torch.get_default_dtype()).div_(255)
