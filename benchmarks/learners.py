"""Methods in the middle of a run, on images like CIFAR-10's, ready for the next incoming batch."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from oclgrid.trainables.datasets import DATASETS, Dataset
from oclgrid.trainables.method import Method
from oclgrid.trainables.registry import find
from oclgrid.trainables.sources import Images, Splits
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import Batch, Stream

MEMORY = 500
LAST_STAGE = 4


def learner(
    name: str, *, side: int = 32, classes: int = 10, memory: int = MEMORY, **settings: Any
) -> Method[Any]:
    """Return a method at the start of the last stage, its memory full of all classes."""
    info = replace(DATASETS["cifar10"], side=side, classes=classes)
    random = np.random.default_rng(0)

    def images(count: int) -> Images:
        pixels = random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        return Images(pixels, np.arange(count) % classes)

    splits = Splits(images(max(2000, memory)), images(100))
    made = new_learner(name, info, splits, memory=memory, **settings)
    made.begin_stage(LAST_STAGE - 1)
    _fill(made, memory)
    made.end_stage()
    made.begin_stage(LAST_STAGE)
    return made


def new_learner(
    name: str, info: Dataset, splits: Splits, *, memory: int, **settings: Any
) -> Method[Any]:
    """Return a method that has seen nothing yet of these images."""
    entry, device = find(name), torch.device("cpu")
    config: Any = entry.config
    spec = CellSpec(
        dataset="cifar10",
        data_digest="random",
        memory_size=memory,
        class_order=0,
        seed=0,
        method=config(**config.for_dataset("cifar10") | settings),
    )
    stream = Stream(spec, info, splits, device=device)
    return entry.learner(spec, info, stream, device=device)


def _fill(method: Method[Any], memory: int) -> None:
    """Put exemplars of every class into the memory, as if the stream had gone by."""
    exemplars = torch.arange(memory)
    labels = method.stream.fetch(exemplars).labels
    state = method.state()
    state["memory"] = {"indices": exemplars, "labels": labels, "seen": 4 * memory}
    if "scores" in state:  # GSS: what its exemplars scored when they came
        state["scores"] = torch.linspace(-1, 1, memory)
    method.load(state)


def take(method: Method[Any], incoming: Batch) -> None:
    """Do all that Algorithm 1 does with one incoming batch."""
    method.receive(incoming)
    for _ in range(method.config.updates_per_batch):
        method.learn(incoming, method.retrieve(incoming))
    method.remember(incoming)
    method.losses.clear()
