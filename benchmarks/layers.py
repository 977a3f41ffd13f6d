"""What bounds a step: its convolutions by themselves, against sgemm and against the whole step."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.learners import LAST_STAGE, learner, take
from benchmarks.measure import Entry, entry, interleaved, middle
from benchmarks.step import GEMM_SIDE

REPEATS = 9


class Layer(NamedTuple):
    """What the time of a convolution depends on."""

    views: int
    inputs: int
    outputs: int
    side: int
    kernel: int
    stride: int

    @property
    def flop(self) -> float:
        """Of forward and backward pass; images have no gradients."""
        pixels = self.views * (self.side // self.stride) ** 2
        passes = 2 if self.inputs == 3 else 3
        return 2.0 * passes * pixels * self.inputs * self.outputs * self.kernel**2

    def calls(self) -> Callable[[], None]:
        """Return its forward and backward pass, channels last as in training."""
        last = torch.channels_last
        images = torch.randn(self.views, self.inputs, self.side, self.side)
        images = images.to(memory_format=last)
        weight = torch.randn(self.outputs, self.inputs, self.kernel, self.kernel)
        weight = weight.to(memory_format=last)
        stride, padding = [self.stride] * 2, [self.kernel // 2] * 2
        gradient = torch.conv2d(images, weight, None, stride, padding)
        backward = torch.ops.aten.convolution_backward
        wanted = [self.inputs != 3, True, False]

        def both() -> None:
            torch.conv2d(images, weight, None, stride, padding)
            like = (gradient, images, weight, None, stride, padding, [1, 1], False, [0, 0], 1)
            backward(*like, wanted)

        return both


def measure() -> list[Entry]:
    """Return rates of the convolutions by channels, of all, and what the step takes beyond them."""
    torch.set_num_threads(1)
    method = learner("sdaf")
    incoming = next(method.stream.batches(LAST_STAGE))
    layers = _layers(method.net["backbone"], lambda: take(method, incoming))
    left = torch.randn(GEMM_SIDE, GEMM_SIDE)

    def gemm() -> Tensor:
        return left @ left

    def step() -> None:
        take(method, incoming)

    calls = [layer.calls() for layer in layers]
    gemm_times, step_times, *times = interleaved([gemm, step, *calls], REPEATS)
    gemm_rates = [2 * GEMM_SIDE**3 / t for t in gemm_times]

    def spent(chosen: list[Layer]) -> list[float]:
        """Return the seconds of these layers in a step, for each repeat."""
        rows = [[layers[k] * t for t in ts] for k, ts in zip(layers, times, strict=True)]
        kept = [row for k, row in zip(layers, rows, strict=True) if k in chosen]
        return [sum(column) for column in zip(*kept, strict=True)]

    def rated(name: str, chosen: list[Layer]) -> Entry:
        flop, took = sum(layers[k] * k.flop for k in chosen), spent(chosen)
        ratios = [flop / t / rate for t, rate in zip(took, gemm_rates, strict=True)]
        figures = {"ms of a step": middle(took), "GFLOP/s": round(flop / 1e6 / middle(took), 1)}
        return entry(name, ratios, "sgemm on one core", figures=figures)

    every = list(layers)
    widths = sorted({k.outputs for k in every})
    by_width = [[k for k in every if k.outputs == width] for width in widths]
    named = zip(widths, by_width, strict=True)
    beyond = [s / c for s, c in zip(step_times, spent(every), strict=True)]
    return [
        *(rated(f"convolutions to {width} channels, FLOP/s", chosen) for width, chosen in named),
        rated("all convolutions of the sdaf step, FLOP/s", every),
        entry("sdaf step", beyond, "its convolutions alone", is_gain=False),
    ]


def _layers(network: nn.Module, step: Callable[[], None]) -> Counter[Layer]:
    """Return how often a step goes through each kind of convolution."""
    found: Counter[Layer] = Counter()

    def note(module: Any, inputs: tuple[Tensor, ...], _: object) -> None:
        views, channels, side, _ = inputs[0].shape
        kernel, stride = module.kernel_size[0], module.stride[0]
        found[Layer(views, channels, module.out_channels, side, kernel, stride)] += 1

    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    hooks = [m.register_forward_hook(note) for m in convolutions]
    step()
    for hook in hooks:
        hook.remove()
    return found
