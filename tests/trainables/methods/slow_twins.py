"""Toy cells, and slow twins of their networks that take the same steps in plain arithmetic."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.spec import CellSpec, MethodConfig
from oclgrid.trainables.stream import Batch

SMALL: dict[str, Any] = {"batch_size": 4, "memory_batch_size": 4}


def toy_cell(method: MethodConfig, memory_size: int, **changes: Any) -> Cell:
    """Return a cell on digits; changes are to its spec."""
    spec = {"class_order": 0, "seed": 0, "stream_fraction": 0.1, **changes}
    digest = DATASETS["digits"].digest
    return Cell(
        CellSpec(
            dataset="digits", data_digest=digest, memory_size=memory_size, method=method, **spec
        ),
        Path("/nonexistent"),
    )


def second_stage(one: Cell, *, old: int | None, new: int) -> tuple[Cell, Batch]:
    """Begin the second stage untrained; return the cell and the next batch.

    Args:
        one: A fresh cell.
        old: Batches of the first stage to remember, all if None.
        new: Batches of the second stage to remember.
    """
    one.method.begin_stage(0)
    for batch in islice(one.stream.batches(0), old):
        one.method.remember(batch)
    one.method.begin_stage(1)
    incoming = one.stream.batches(1)
    for _ in range(new):
        one.method.remember(next(incoming))
    return one, next(incoming)


def clone(generator: torch.Generator) -> torch.Generator:
    """Return a generator about to make the same draws."""
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    return twin


def cross_entropies(net: nn.ModuleDict, batch: Batch) -> list[Tensor]:
    """-log p of each image's own class, image by image, from one forward pass."""
    outputs = net["softmax"](net["backbone"](batch.images))
    pairs = zip(outputs, batch.labels, strict=True)
    return [-torch.log(torch.exp(z[y]) / torch.exp(z).sum()) for z, y in pairs]


def mean_loss(net: nn.ModuleDict, batch: Batch) -> Tensor:
    return torch.stack(cross_entropies(net, batch)).mean()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a.square().sum().sqrt() * b.square().sum().sqrt())


def gradients(net: nn.ModuleDict, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True))


def move(net: nn.ModuleDict, along: Sequence[Tensor], rate: float = 0.1) -> None:
    """theta <- theta - rate * gradient, parameter by parameter."""
    with torch.no_grad():
        for parameter, gradient in zip(net.parameters(), along, strict=True):
            parameter.copy_(parameter - rate * gradient)


def descend(net: nn.ModuleDict, loss: Tensor, rate: float = 0.1) -> None:
    """Move down a loss that every parameter must take part in."""
    move(net, torch.autograd.grad(loss, list(net.parameters())), rate)


def assert_same(
    net: nn.ModuleDict, twin: nn.ModuleDict, *, atol: float = 2e-5, rtol: float = 1e-4
) -> None:
    for name, value in net.state_dict().items():
        assert torch.allclose(value, twin.state_dict()[name], atol=atol, rtol=rtol), name
