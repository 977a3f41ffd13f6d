import copy
from typing import Any

import pytest
import torch
from slow_twins import (
    SMALL,
    assert_same,
    clone,
    cross_entropies,
    gradients,
    mean_loss,
    move,
    second_stage,
    toy_cell,
)
from torch import nn

from oclgrid.trainables.configs.mir import MirConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.stream import Batch


def cell(memory_size: int = 12, **changes: Any) -> Cell:
    return toy_cell(MirConfig(**{**SMALL, **changes}), memory_size)


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    """Return a cell whose memory holds eight old and four new images, and the next batch."""
    return second_stage(cell(**changes), old=2, new=1)


def slow_step(
    of: Cell, incoming: Batch, *, candidates: int, rate: float = 0.1
) -> tuple[nn.ModuleDict, list[int]]:
    """Return the network after the step of 6.5, and the images replayed, in falling score."""
    net, draws = copy.deepcopy(of.method.net), clone(of.method.memory_rng)
    along = gradients(net, mean_loss(net, incoming))
    memory = of.method.memory
    slots = torch.randperm(memory.filled, generator=draws)[:candidates]
    subset = of.stream.fetch(memory.indices[slots])
    virtual = copy.deepcopy(net)
    move(virtual, along, rate)
    with torch.no_grad():
        after, now = cross_entropies(virtual, subset), cross_entropies(net, subset)
    harm = [float(a - b) for a, b in zip(after, now, strict=True)]
    worst = sorted(range(len(harm)), key=lambda i: -harm[i])[:4]
    replay = of.stream.fetch(subset.indices[worst])
    more = gradients(net, mean_loss(net, replay))
    move(net, [a + b for a, b in zip(along, more, strict=True)], rate)
    return net, replay.indices.tolist()


def assert_step(of: Cell, incoming: Batch, twin: nn.ModuleDict, expected: list[int]) -> None:
    """Take a step; compare the images replayed and the network."""
    replay = of.method.retrieve(incoming)
    assert replay is not None
    assert replay.indices.tolist() == expected
    of.method.learn(incoming, replay)
    assert_same(of.method.net, twin)


@pytest.mark.parametrize("rate", [0.1, 0.03])
def test_a_step_replays_what_a_virtual_step_would_hurt_most(rate: float) -> None:
    one, incoming = in_second_stage(candidates=9, learning_rate=rate)
    twin, expected = slow_step(one, incoming, candidates=9, rate=rate)
    assert_step(one, incoming, twin, expected)


def test_a_second_step_draws_and_scores_anew() -> None:
    one, incoming = in_second_stage(candidates=9)
    one.method.learn(incoming, one.method.retrieve(incoming))
    twin, expected = slow_step(one, incoming, candidates=9)
    assert_step(one, incoming, twin, expected)


def test_all_exemplars_are_candidates_where_there_are_fewer_than_asked_for() -> None:
    one, incoming = in_second_stage()
    assert one.spec.method.candidates == 50  # type: ignore[attr-defined]  # of MIR
    twin, expected = slow_step(one, incoming, candidates=12)
    assert_step(one, incoming, twin, expected)


def test_the_first_batch_is_trained_on_alone() -> None:
    one = cell()
    one.method.begin_stage(0)
    incoming, twin = next(one.stream.batches(0)), copy.deepcopy(one.method.net)
    replay = one.method.retrieve(incoming)
    assert replay is None
    one.method.learn(incoming, replay)
    move(twin, gradients(twin, mean_loss(twin, incoming)))
    assert_same(one.method.net, twin)


def test_the_loss_of_a_step_is_the_sum_of_both_means() -> None:
    one, incoming = in_second_stage()
    twin = copy.deepcopy(one.method.net)
    replay = one.method.retrieve(incoming)
    assert replay is not None
    one.method.learn(incoming, replay)
    expected = float(mean_loss(twin, incoming).detach() + mean_loss(twin, replay).detach())
    assert float(one.method.losses[-1]) == pytest.approx(expected, rel=1e-4)


def test_scoring_is_not_counted_as_training() -> None:
    one, incoming = in_second_stage()
    one.method.learn(incoming, one.method.retrieve(incoming))
    assert one.method.trained_images == 8


def test_fewer_candidates_than_a_memory_batch_are_refused() -> None:
    with pytest.raises(SpecError, match=r"mir\.candidates must not be below memory_batch_size"):
        cell(candidates=3)


def test_a_union_is_refused_since_the_incoming_gradient_is_needed_alone() -> None:
    with pytest.raises(SpecError, match=r"mir\.composition must be separate, got 'union'"):
        cell(composition="union")
