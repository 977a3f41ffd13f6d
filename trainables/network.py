"""The reduced ResNet-18 that all methods share, and the small heads on top of it."""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 20


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, non-negative."""
        # In place wherever the backward pass needs only the result: the same bits, a twentieth
        # of the training time less.
        out = self.bn2(self.conv2(F.relu_(self.bn1(self.conv1(x)))))
        out += self.shortcut(x)
        return F.relu_(out)


class Backbone(nn.Module):
    """F of the paper: reduced ResNet-18, images to non-negative features."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        *,
        pool: str = "global",
        mean: tuple[float, ...] = (0.0, 0.0, 0.0),
        std: tuple[float, ...] = (1.0, 1.0, 1.0),
        precision: str = "float32",
    ) -> None:
        """Build it with PyTorch's default initialisation.

        Args:
            pool: "global" averages each map; "grid" averages windows of 4x4, as the reference.
            mean: Subtracted from each channel of the input.
            std: Divides each channel of the input.
            precision: "bfloat16" computes maps with half as many bits; weights and features
                keep all of theirs.
        """
        super().__init__()
        self.pool, self.precision = pool, precision
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))
        self.is_standardised = (*mean, *std) != (0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(WIDTH)
        blocks, inputs = [], WIDTH
        for group, stride in enumerate((1, 2, 2, 2)):
            outputs = WIDTH * 2**group
            blocks += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Return N x D features of N x 3 x H x W images in [0, 1]."""
        with self.computing(x):
            last = self.maps(self.standardised(x))[-1].to(x.dtype)
        if self.pool == "global":
            return last.mean(dim=(2, 3))
        return F.avg_pool2d(last, min(4, last.shape[-1])).flatten(1)

    def computing(self, x: Tensor) -> torch.autocast:
        """Hold the precision of the layers while they take in images like these."""
        is_short = self.precision == "bfloat16"
        return torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=is_short)

    def standardised(self, x: Tensor) -> Tensor:
        """Return the images as the first layer takes them."""
        return (x - self.mean) / self.std if self.is_standardised else x

    def maps(self, x: Tensor) -> list[Tensor]:
        """Return the feature maps of the four groups of blocks."""
        outputs = []
        x = F.relu_(self.bn(self.stem(x)))
        for number, block in enumerate(self.blocks, start=1):
            x = block(x)
            if number % 2 == 0:
                outputs.append(x)
        return outputs


class DualBackbone(nn.Module):
    """DualNet's features: a small fast net takes in the image, modulated by a slow backbone.

    m_i = fast_i(m_{i-1}) * h_i, where h_i are the slow net's maps. The common backbone has no
    pooling in its stem, so the first fast block has none either, and sizes match.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.slow = Backbone(**options)
        widths = [3, *(WIDTH * 2**group for group in range(4))]
        self.fast = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
            )
            for inputs, outputs in pairwise(widths)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return N x D features of N x 3 x H x W images in [0, 1]."""
        maps = self.slow.standardised(x)
        with self.slow.computing(x):
            slow_maps = self.slow.maps(maps)
            for number, (fast, slow) in enumerate(zip(self.fast, slow_maps, strict=True)):
                maps = fast(maps)
                if number > 0:
                    maps = F.max_pool2d(maps, 2, ceil_mode=True)
                maps = maps * slow
        return maps.to(x.dtype).mean(dim=(2, 3))


Features = Backbone | DualBackbone
"""What turns images into features."""


def feature_size(side: int, pool: str) -> int:
    """Return D, the number of features of an image of that side."""
    if pool == "global":
        return WIDTH * 8
    return WIDTH * 8 * max(1, -(-side // 8) // 4) ** 2


def mlp(inputs: int, hidden: int, outputs: int, *, norm: bool = False) -> nn.Sequential:
    """Return a two-layer perceptron; with ``norm``, BatchNorm after the hidden layer."""
    middle = [nn.BatchNorm1d(hidden)] if norm else []
    return nn.Sequential(nn.Linear(inputs, hidden), *middle, nn.ReLU(), nn.Linear(hidden, outputs))
