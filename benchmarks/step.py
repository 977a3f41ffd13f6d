"""A whole SDAF training step against a plain one and against the machine's matrix product."""

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import Entry, entry, interleaved
from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.method import Method
from oclgrid.trainables.registry import find
from oclgrid.trainables.sources import Images, Splits
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import Batch, Stream

REPEATS = 15
GEMM_SIDE = 1536
MULTIPLY_ADDS = 54.6e6
"""Of one forward pass of the reduced ResNet-18 at 32x32; the backward pass costs two more."""


def measure() -> list[Entry]:
    """Return the ratios; one thread, images like CIFAR-10's."""
    torch.set_num_threads(1)
    fast, plain = _learner(), _learner()
    plain.net.to(memory_format=torch.contiguous_format)
    batches = list(fast.stream.batches(0))
    for learner in (fast, plain):
        for batch in batches[:4]:
            learner.remember(batch)
    left = torch.randn(GEMM_SIDE, GEMM_SIDE)

    def fast_step() -> None:
        fast.learn(batches[5], fast.retrieve(batches[5]))
        fast.remember(batches[5])

    def plain_step() -> None:
        incoming, replay = _nchw(batches[5]), plain.retrieve(batches[5])
        plain.learn(incoming, _nchw(replay) if replay else None)
        plain.remember(incoming)

    def gemm() -> Tensor:
        return left @ left

    fast_times, plain_times, gemm_times = interleaved([fast_step, plain_step, gemm], REPEATS)
    step_flop = 160 * 3 * 2 * MULTIPLY_ADDS
    gemm_flop = 2 * GEMM_SIDE**3
    pairs = list(zip(fast_times, plain_times, gemm_times, strict=True))
    return [
        entry("SDAF step, images/s", [p / f for f, p, _ in pairs], "the same step in NCHW"),
        entry(
            "SDAF step, FLOP/s",
            [(step_flop / f) / (gemm_flop / g) for f, _, g in pairs],
            "sgemm on one core",
        ),
    ]


def _learner() -> Method:  # type: ignore[type-arg]  # any method would do
    info = DATASETS["cifar10"]
    generator = np.random.default_rng(0)

    def images(count: int) -> Images:
        pixels = generator.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        return Images(pixels, np.arange(count) % 10)

    spec = CellSpec(
        dataset="cifar10",
        data_digest="random",
        memory_size=500,
        class_order=0,
        seed=0,
        method=find("sdaf").config(),  # type: ignore[call-arg]  # every method has defaults
    )
    splits = Splits(images(1000), images(100))
    stream = Stream(spec, info, splits, device=torch.device("cpu"))
    learner = find("sdaf").learner(spec, info, stream, device=torch.device("cpu"))
    learner.begin_stage(0)
    return learner


def _nchw(batch: Batch) -> Batch:
    return Batch(batch.images.contiguous(), batch.labels, batch.indices)
