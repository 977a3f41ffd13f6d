"""A finished cell as analyses see it: the features of images by its backbone after each stage."""

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from oclgrid.trainables.loop import Cell, CheckpointError
from oclgrid.trainables.network import Features
from oclgrid.trainables.outliers import load_outliers
from oclgrid.trainables.predictor import evaluating
from oclgrid.trainables.stream import to_float
from oclgrid.trainables.views import rotations

T = TypeVar("T", bound=np.generic)
BATCH = 250


class Snapshots:
    """Features without augmentation, in evaluation mode, each computed once and kept.

    Stages count from 1. Where a backbone's stage is not given, the last one is meant.
    """

    def __init__(
        self, cell: Cell, checkpoint: Callable[[int], bytes | None], *, data: Path
    ) -> None:
        self.cell, self._checkpoint, self._data = cell, checkpoint, data
        self.stages = cell.info.stages
        last = cell.method.net["backbone"]
        assert isinstance(last, Features)
        self._backbones: dict[int, Features] = {self.stages: last}
        self._known: dict[Hashable, Tensor] = {}

    def arrived(
        self, stage: int, count: int | None, *, backbone: int | None = None, turn: int = 0
    ) -> Tensor:
        """Return N x D features of the training images of a stage, turned by quarter turns.

        Args:
            stage: In which the images arrived.
            count: Take only the first so many, which is a random draw; None takes all.
            backbone: After which stage.
            turn: Quarter turns of the images.
        """
        positions = self._arrivals(stage, count)
        return self._features(
            ("arrived", stage, count), lambda: self._fetched(positions), backbone, turn
        )

    def arrived_labels(self, stage: int, count: int | None) -> Tensor:
        """Return the arrival ranks that belong to ``arrived``."""
        return self.cell.stream.labels(self._arrivals(stage, count))

    def arrived_is_kept(self, stage: int, count: int | None) -> Tensor:
        """Return which images of ``arrived`` are exemplars after the last stage."""
        return torch.isin(self._arrivals(stage, count), self._exemplars)

    def memory(self, *, turn: int = 0) -> Tensor:
        """Return features of the exemplars in memory after the last stage."""
        return self._features("memory", lambda: self._fetched(self._exemplars), None, turn)

    @property
    def memory_labels(self) -> Tensor:
        """The arrival ranks that belong to ``memory``."""
        return self.cell.method.memory.labels[: self.cell.method.memory.filled]

    def peers(self, *, turn: int = 0) -> Tensor:
        """Return features of training images that are no exemplars, as many a class as are.

        Evenly spaced over the arrival of their class; all that there are where they are fewer.
        """
        return self._features("peers", lambda: self._fetched(self._peers), None, turn)

    @property
    def peer_labels(self) -> Tensor:
        """The arrival ranks that belong to ``peers``."""
        return self.cell.stream.labels(self._peers)

    def test(self, *, turn: int = 0) -> Tensor:
        """Return features of all images the cell is tested on."""
        every = self.cell.info.classes
        return self._features(
            "test", lambda: (i for i, _ in self.cell.stream.evaluation(every, BATCH)), None, turn
        )

    @property
    def test_labels(self) -> Tensor:
        """The arrival ranks that belong to ``test``."""
        every = self.cell.stream.evaluation(self.cell.info.classes, BATCH)
        return torch.cat([labels for _, labels in every])

    def outliers(self, name: str, count: int | None, *, turn: int = 0) -> Tensor:
        """Return features of images of a set of outliers; ``count`` of them, evenly spaced."""
        return self._features(
            ("outliers", name, count), lambda: self._outlier_batches(name, count), None, turn
        )

    @property
    def _exemplars(self) -> Tensor:
        memory = self.cell.method.memory
        return memory.indices[: memory.filled]

    @cached_property
    def _peers(self) -> Tensor:
        every = torch.cat([self._arrivals(s, None) for s in range(1, self.stages + 1)])
        others = every[~torch.isin(every, self._exemplars)]
        labels = self.cell.stream.labels(others)
        counts = self.memory_labels.cpu().bincount(minlength=self.cell.info.classes)
        parts = [spaced(others[labels == c].numpy(), int(count)) for c, count in enumerate(counts)]
        return torch.from_numpy(np.concatenate(parts))

    def _arrivals(self, stage: int, count: int | None) -> Tensor:
        return self.cell.stream.arrivals(stage - 1)[:count]

    def _fetched(self, positions: Tensor) -> Iterator[Tensor]:
        return (self.cell.stream.fetch(chunk).images for chunk in positions.split(BATCH))

    def _outlier_batches(self, name: str, count: int | None) -> Iterator[Tensor]:
        images = spaced(load_outliers(name, self._data, side=self.cell.info.side), count)
        for start in range(0, len(images), BATCH):
            yield to_float(images[start : start + BATCH], self.cell.method.device)

    def _features(
        self,
        what: Hashable,
        batches: Callable[[], Iterator[Tensor]],
        backbone: int | None,
        turn: int,
    ) -> Tensor:
        stage = backbone or self.stages
        key = (what, stage, turn)
        if key not in self._known:
            net = self.backbone(stage)
            with evaluating(net):
                parts = [net(_turned(images, turn)).cpu() for images in batches()]
            self._known[key] = torch.cat([torch.empty(0, self.cell.method.features_out), *parts])
        return self._known[key]

    def backbone(self, stage: int | None = None) -> Features:
        """Return the backbone as it was after a stage."""
        stage = stage or self.stages
        if stage not in self._backbones:
            content = self._checkpoint(stage)
            if content is None:
                raise CheckpointError(f"the checkpoint of stage {stage} is missing or damaged")
            self._backbones[stage] = self.cell.backbone_of(content, stage)
        return self._backbones[stage]


def spaced(items: npt.NDArray[T], count: int | None) -> npt.NDArray[T]:
    """Return ``count`` of the items at even distances, so that sorted ones are all met."""
    if count is None or count >= len(items):
        return items
    return items[np.arange(count) * len(items) // count]


def _turned(images: Tensor, turn: int) -> Tensor:
    return rotations(images)[turn::4] if turn else images
