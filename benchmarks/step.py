"""A whole SDAF training step against a plain one and against the machine's matrix product."""

import torch
from torch import Tensor

from benchmarks.learners import LAST_STAGE, learner, take
from benchmarks.measure import Entry, entry, interleaved
from benchmarks.plain import made_plain

REPEATS = 15
GEMM_SIDE = 1536
MULTIPLY_ADDS = 54.6e6
"""Of one forward pass of the reduced ResNet-18 at 32x32; the backward pass costs two more."""


def measure() -> list[Entry]:
    """Return the ratios; one thread, images like CIFAR-10's."""
    torch.set_num_threads(1)
    fast, plain = learner("sdaf"), made_plain(learner("sdaf"))
    incoming = next(fast.stream.batches(LAST_STAGE))
    same = plain.stream.fetch(incoming.indices)
    left = torch.randn(GEMM_SIDE, GEMM_SIDE)

    def fast_step() -> None:
        take(fast, incoming)

    def plain_step() -> None:
        take(plain, same)

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
