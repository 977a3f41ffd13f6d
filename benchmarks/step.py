"""A training step of SDAF, SCR and ER against a plain one and the machine's matrix product."""

import torch
from torch import Tensor

from benchmarks.learners import LAST_STAGE, learner, take
from benchmarks.measure import Entry, entry, interleaved, middle
from benchmarks.plain import made_plain

METHODS = ("sdaf", "scr", "er")
REPEATS = 15
GEMM_SIDE = 1536
MULTIPLY_ADDS = 54.6e6
"""Of one forward pass of the reduced ResNet-18 at 32x32; the backward pass costs two more."""


def measure() -> list[Entry]:
    """Return the ratios; one thread, images like CIFAR-10's."""
    torch.set_num_threads(1)
    return [*(e for name in METHODS for e in _measured(name)), _shorter()]


def _measured(name: str) -> list[Entry]:
    fast, plain = learner(name), made_plain(learner(name))
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
    images = fast.trained_images / (REPEATS + 1)
    step_flop = images * 3 * 2 * MULTIPLY_ADDS
    gemm_flop = 2 * GEMM_SIDE**3
    pairs = list(zip(fast_times, plain_times, gemm_times, strict=True))
    return [
        entry(
            f"{name} step, images/s",
            [p / f for f, p, _ in pairs],
            "the same step in NCHW",
            figures={"ms/image": middle([t / images for t in fast_times])},
        ),
        entry(
            f"{name} step, FLOP/s",
            [(step_flop / f) / (gemm_flop / g) for f, _, g in pairs],
            "sgemm on one core",
        ),
    ]


def _shorter() -> Entry:
    """Return what numbers of half the length gain, where the processor multiplies them."""
    long, short = learner("sdaf"), learner("sdaf", precision="bfloat16")
    incoming = next(long.stream.batches(LAST_STAGE))
    times = interleaved([lambda: take(long, incoming), lambda: take(short, incoming)], REPEATS)
    ratios = [slow / quick for slow, quick in zip(*times, strict=True)]
    return entry("sdaf step in bfloat16, images/s", ratios, "the same step in float32")
