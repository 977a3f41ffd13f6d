"""Slow twins of the methods: the same algorithm in the obvious way, for something to beat."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torchvision.transforms import v2

from oclgrid.trainables.method import Method
from oclgrid.trainables.methods.aser import Aser
from oclgrid.trainables.methods.gss import Gss
from oclgrid.trainables.series import ViewSeries
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.virtual import Call

METHODS = "oclgrid.trainables.methods"
VIEWS = "views one image at a time"
COPY = "a copy of the network for the virtual step"
TWINS = {
    "aser": "features set by set, Shapley values in loops",
    "dualnet": VIEWS,
    "dvc": f"{VIEWS}, {COPY}",
    "gss": "gradients one image at a time",
    "mir": COPY,
    "scl": VIEWS,
    "scr": VIEWS,
    "sdaf": VIEWS,
}
"""What is slow about a twin besides its memory format; the other methods have nothing else."""
_of_batch, _of_parts = Gss._gradient, Gss._memory_gradients


def made_plain(method: Method[Any]) -> Method[Any]:
    """Turn a method's network and images to NCHW, PyTorch's default."""
    method.net.to(memory_format=torch.contiguous_format)
    fetch = method.stream.fetch

    def contiguous(indices: Tensor) -> Batch:
        batch = fetch(indices)
        return Batch(batch.images.contiguous(), batch.labels, batch.indices)

    method.stream.fetch = contiguous  # type: ignore[method-assign]  # of this stream only
    return method


def slowly(name: str) -> AbstractContextManager[Any]:
    """Hold a method's fast parts replaced by obvious ones."""
    stack, about = ExitStack(), TWINS.get(name, "")
    module = f"{METHODS}.{'scr' if name == 'scl' else name}"
    if VIEWS in about:
        stack.enter_context(patch(f"{module}.view", one_by_one))
    if name == "scl":
        stack.enter_context(patch(f"{METHODS}.scl.view", one_by_one))
    if COPY in about:
        stack.enter_context(patch(f"{module}.after_step", _after_step))
    if name == "gss":
        for slow in (_gradient, _own_gradients, _memory_gradients):
            stack.enter_context(patch.object(Gss, slow.__name__, slow))
    if name == "aser":
        stack.enter_context(patch.object(Aser, "_features", _features))
        stack.enter_context(patch(f"{module}.knn_shapley", _knn_shapley))
    return stack


def one_by_one(
    series: ViewSeries, images: Tensor, generator: torch.Generator, *, shared: bool = False
) -> Tensor:
    """Return one fresh view of each image, as torchvision makes them."""
    del generator  # torchvision draws from the global one
    colours = (series.brightness, series.contrast, series.saturation, series.hue)
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(images.shape[-1], (series.crop_min, 1.0), antialias=True),
            v2.RandomHorizontalFlip(series.flip),
            v2.RandomApply([v2.ColorJitter(*colours)], p=series.jitter),
            v2.RandomGrayscale(series.grey),
        ]
    )
    return transform(images) if shared else torch.stack([transform(image) for image in images])


def _after_step(net: nn.ModuleDict, gradients: Sequence[Tensor], rate: float) -> Call:
    moved = copy.deepcopy(net)
    with torch.no_grad():
        for parameter, gradient in zip(moved.parameters(), gradients, strict=True):
            parameter -= rate * gradient
    return lambda part, x: moved[part](x)


def _own_gradients(gss: Gss, batch: Batch) -> Tensor:
    images = (gss.stream.fetch(index[None]) for index in batch.indices)
    return torch.stack([_of_batch(gss, image) for image in images])


def _gradient(gss: Gss, batch: Batch) -> Tensor:
    return _own_gradients(gss, batch).mean(0)


def _memory_gradients(gss: Gss) -> Iterator[Tensor]:
    return iter(list(_of_parts(gss)))  # all of them, whether one decides or not


def _features(aser: Aser, *batches: Batch) -> list[Tensor]:
    """Return the features of each set; the first, the candidates, twice, as the reference does."""
    aser.net.eval()
    with torch.no_grad():
        found = [aser.net["backbone"](b.images) for b in (batches[0], *batches)][1:]
    aser.net.train()
    return found


def _knn_shapley(
    points: Tensor,
    labels: Tensor,
    candidates: Tensor,
    *,
    candidate_labels_N: Tensor,
    neighbours: int,
) -> Tensor:
    n, k = len(candidates), neighbours
    values = torch.zeros(len(points), n, dtype=torch.float64)
    for e, (point, label) in enumerate(zip(points, labels, strict=True)):
        gaps = (point.expand_as(candidates) - candidates).square().sum(1)
        order = gaps.argsort().tolist()
        hits = [float(candidate_labels_N[c] == label) for c in order]
        values[e, order[-1]] = s = hits[-1] / n
        for m in range(n - 1, 0, -1):
            s += (hits[m - 1] - hits[m]) / k * min(k, m) / m
            values[e, order[m - 1]] = s
    return values
