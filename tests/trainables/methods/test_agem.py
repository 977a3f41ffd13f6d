import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.methods.agem import AgemConfig
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import Batch


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cell(memory_size: int = 12, **changes: Any) -> Cell:
    config = AgemConfig(**{"batch_size": 4, "memory_batch_size": 4, **changes})
    spec = CellSpec(
        dataset="digits",
        data_digest=DATASETS["digits"].digest,
        memory_size=memory_size,
        class_order=0,
        seed=0,
        method=config,
        stream_fraction=0.1,
    )
    return Cell(spec, Path("/nonexistent"))


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    """Return a cell whose memory holds eight old and four new images, and the next batch."""
    one = cell(**changes)
    one.method.begin_stage(0)
    old = one.stream.batches(0)
    for _ in range(2):
        one.method.remember(next(old))
    one.method.begin_stage(1)
    incoming = one.stream.batches(1)
    one.method.remember(next(incoming))
    return one, next(incoming)


def cross_entropies(net: nn.ModuleDict, batch: Batch) -> list[Tensor]:
    """-log p of each image's own class, image by image, from one forward pass."""
    outputs = net["softmax"](net["backbone"](batch.images))
    pairs = zip(outputs, batch.labels, strict=True)
    return [-torch.log(torch.exp(z[y]) / torch.exp(z).sum()) for z, y in pairs]


def mean_loss(net: nn.ModuleDict, batch: Batch) -> Tensor:
    return torch.stack(cross_entropies(net, batch)).mean()


def gradients(net: nn.ModuleDict, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True))


def move(net: nn.ModuleDict, along: list[Tensor], rate: float = 0.1) -> None:
    """theta <- theta - rate * gradient, parameter by parameter."""
    with torch.no_grad():
        for parameter, gradient in zip(net.parameters(), along, strict=True):
            parameter.copy_(parameter - rate * gradient)


def assert_same(net: nn.ModuleDict, twin: nn.ModuleDict) -> None:
    for name, value in net.state_dict().items():
        assert torch.allclose(value, twin.state_dict()[name], atol=2e-5, rtol=1e-4), name


def inner(a: list[Tensor], b: list[Tensor]) -> float:
    """Over all parameters together."""
    return sum(float((x * y).sum()) for x, y in zip(a, b, strict=True))


def slow_step(of: Cell, incoming: Batch, replay: Batch) -> tuple[nn.ModuleDict, float]:
    """Return the network after the step of 6.3, and the inner product of both gradients."""
    net = copy.deepcopy(of.method.net)
    g = gradients(net, mean_loss(net, incoming))
    r = gradients(net, mean_loss(net, replay))
    product = inner(g, r)
    if product < 0:
        g = [a - product / inner(r, r) * b for a, b in zip(g, r, strict=True)]
    move(net, g)
    return net, product


def relabelled(batch: Batch) -> Batch:
    """The same images as another class: a gradient that pulls the other way."""
    return Batch(batch.images, (batch.labels + 2) % 4, batch.indices)


def test_a_step_against_the_memory_is_projected() -> None:
    one, incoming = in_second_stage()
    for _ in range(3):
        one.method.learn(incoming, None)
    replay = relabelled(incoming)
    twin, product = slow_step(one, incoming, replay)
    assert product < 0
    one.method.learn(incoming, replay)
    assert_same(one.method.net, twin)


def test_a_step_with_the_memory_is_left_alone() -> None:
    one, incoming = in_second_stage()
    twin, product = slow_step(one, incoming, incoming)
    assert product > 0
    one.method.learn(incoming, incoming)
    assert_same(one.method.net, twin)


def test_the_memorys_gradient_only_steers_and_is_never_followed() -> None:
    one, incoming = in_second_stage()
    plain = copy.deepcopy(one.method.net)
    move(plain, gradients(plain, mean_loss(plain, incoming)))
    one.method.learn(incoming, incoming)
    for a, b in zip(one.method.net.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_retrieved_exemplars_are_the_reference() -> None:
    one, incoming = in_second_stage()
    replay = one.method.retrieve(incoming)
    assert replay is not None
    twin, _ = slow_step(one, incoming, replay)
    one.method.learn(incoming, replay)
    assert_same(one.method.net, twin)
    assert one.method.trained_images == 8


def test_the_memory_is_left_alone_in_the_first_stage() -> None:
    one = cell()
    one.method.begin_stage(0)
    batches = one.stream.batches(0)
    one.method.remember(next(batches))
    incoming, twin = next(batches), copy.deepcopy(one.method.net)
    assert one.method.retrieve(incoming) is None
    one.method.learn(incoming, None)
    move(twin, gradients(twin, mean_loss(twin, incoming)))
    assert_same(one.method.net, twin)
    assert one.method.trained_images == 4


def test_the_memory_is_filled_in_the_first_stage() -> None:
    one = cell(updates_per_batch=1)
    one.run_stage()
    assert one.method.memory.filled == 12


def test_the_memory_can_be_used_from_the_start() -> None:
    one = cell(memory_from="start")
    one.method.begin_stage(0)
    batches = one.stream.batches(0)
    first = next(batches)
    assert one.method.retrieve(first) is None
    one.method.remember(first)
    replay = one.method.retrieve(next(batches))
    assert replay is not None
    assert sorted(replay.indices.tolist()) == sorted(first.indices.tolist())


def test_a_union_is_refused_since_there_is_no_replay_loss() -> None:
    with pytest.raises(SpecError, match=r"agem\.composition must be separate, got 'union'"):
        cell(composition="union")
