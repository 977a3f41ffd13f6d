import copy
from typing import Any

import pytest
import torch
from slow_twins import SMALL, assert_same, gradients, mean_loss, move, second_stage, toy_cell
from torch import Tensor, nn

from oclgrid.trainables.configs.agem import AgemConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.stream import Batch


def cell(memory_size: int = 12, **changes: Any) -> Cell:
    return toy_cell(AgemConfig(**{**SMALL, **changes}), memory_size)


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    """Return a cell whose memory holds eight old and four new images, and the next batch."""
    return second_stage(cell(**changes), old=2, new=1)


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
