"""GSS's memory update along a stream, against gradients taken one image at a time."""

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.learners import new_learner
from benchmarks.measure import Entry, entry, middle, seconds
from benchmarks.plain import TWINS, made_plain, slowly
from oclgrid.trainables.datasets import DATASETS, data_root, load
from oclgrid.trainables.method import Method
from oclgrid.trainables.sources import Images, Splits

MEMORY = 100
"""Full after the first stage; ten parts of ten, as with any larger one."""
STAGES, BATCHES = 5, 8
"""An update costs by how many parts it looks at, so it is measured on batches of later stages."""


def measure() -> list[Entry]:
    """Return the ratio of the updates of a stage; one thread, digits the size of CIFAR's images."""
    torch.set_num_threads(1)
    info, splits = DATASETS["cifar10"], _large_digits()
    fast = new_learner("gss", info, splits, memory=MEMORY)
    plain = made_plain(new_learner("gss", info, splits, memory=MEMORY))
    by_stage = [list(_updates(fast, plain, stage)) for stage in range(STAGES)][1:]
    ratios = [sum(slow for _, slow in s) / sum(quick for quick, _ in s) for s in by_stage]
    each = [quick for stage in by_stage for quick, _ in stage]
    return [entry("gss update", ratios, TWINS["gss"], figures={"ms": middle(each)})]


def _updates(fast: Method[Any], plain: Method[Any], stage: int) -> Iterator[tuple[float, float]]:
    """Train on a stage; yield the seconds of each update, ours and the slow one's."""
    fast.begin_stage(stage)
    plain.begin_stage(stage)
    for number, incoming in enumerate(fast.stream.batches(stage)):
        if number == BATCHES and fast.memory.filled == MEMORY:
            break
        for _ in range(fast.config.updates_per_batch):
            fast.learn(incoming, fast.retrieve(incoming))
        plain.load(fast.state())
        plain.memory_rng.set_state(fast.memory_rng.get_state())
        same = plain.stream.fetch(incoming.indices)
        with slowly("gss"):
            slow = seconds(lambda same=same: plain.remember(same))
        quick = seconds(lambda incoming=incoming: fast.remember(incoming))
        assert torch.equal(fast.memory.indices, plain.memory.indices)
        yield quick, slow


def _large_digits() -> Splits:
    """Return real images, whose gradients agree as those of a dataset do, at 32 x 32."""
    parts = load(DATASETS["digits"], data_root())
    return Splits(*(Images(p.images.repeat(2, 1).repeat(2, 2), p.labels) for p in parts))
