import copy
from functools import partial
from typing import Any

import pytest
import slow_twins
import torch
from slow_twins import SMALL, descend, second_stage, toy_cell
from torch import Tensor, nn

from oclgrid.trainables.configs.er import ErConfig
from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.stream import Batch

assert_same = partial(slow_twins.assert_same, atol=1e-5, rtol=1e-5)


def cell(memory_size: int = 8, **changes: Any) -> Cell:
    return toy_cell(ErConfig(**{**SMALL, **changes}), memory_size)


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    """Return a cell whose memory holds four old and four new images, and the next batch."""
    return second_stage(cell(**changes), old=1, new=1)


def cross_entropy(net: nn.ModuleDict, batch: Batch) -> Tensor:
    """The mean over images of -log p, over the outputs of all classes, image by image."""
    total = torch.zeros(())
    outputs = net["softmax"](net["backbone"](batch.images))
    for scores, label in zip(outputs, batch.labels, strict=True):
        total = total - torch.log(torch.exp(scores[label]) / torch.exp(scores).sum())
    return total / len(batch)


def union(one: Batch, other: Batch) -> Batch:
    pairs = zip(
        (one.images, one.labels, one.indices),
        (other.images, other.labels, other.indices),
        strict=True,
    )
    return Batch(*(torch.cat(pair) for pair in pairs))


def test_a_step_adds_the_means_of_two_forward_passes() -> None:
    one, incoming = in_second_stage()
    replay, twin = one.method.retrieve(incoming), copy.deepcopy(one.method.net)
    assert replay is not None
    one.method.learn(incoming, replay)
    loss = cross_entropy(twin, incoming) + cross_entropy(twin, replay)
    descend(twin, loss)
    assert float(one.method.losses[-1]) == pytest.approx(float(loss.detach()), rel=1e-5)
    assert_same(one.method.net, twin)


def test_a_step_on_the_union_is_one_mean_of_one_forward_pass() -> None:
    one, incoming = in_second_stage(composition="union")
    replay, twin = one.method.retrieve(incoming), copy.deepcopy(one.method.net)
    assert replay is not None
    one.method.learn(incoming, replay)
    descend(twin, cross_entropy(twin, union(incoming, replay)))
    assert_same(one.method.net, twin)


@pytest.mark.parametrize("composition", ["separate", "union"])
def test_the_first_batch_is_trained_on_alone(composition: str) -> None:
    one = cell(composition=composition)
    one.method.begin_stage(0)
    incoming, twin = next(one.stream.batches(0)), copy.deepcopy(one.method.net)
    replay = one.method.retrieve(incoming)
    assert replay is None
    one.method.learn(incoming, replay)
    descend(twin, cross_entropy(twin, incoming))
    assert_same(one.method.net, twin)
    assert one.method.trained_images == 4


def test_momentum_and_weight_decay_enter_the_step() -> None:
    one, incoming = in_second_stage(momentum=0.9, weight_decay=0.01, learning_rate=0.05)
    twin = copy.deepcopy(one.method.net)
    velocity = [torch.zeros_like(p) for p in twin.parameters()]
    for _ in range(2):
        one.method.learn(incoming, None)
        parameters = list(twin.parameters())
        gradients = torch.autograd.grad(cross_entropy(twin, incoming), parameters)
        with torch.no_grad():
            for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                velocity[i] = 0.9 * velocity[i] + gradient + 0.01 * parameter
                parameter.copy_(parameter - 0.05 * velocity[i])
    assert_same(one.method.net, twin)


def test_memory_is_drawn_anew_for_each_update() -> None:
    one, incoming = in_second_stage()
    drawn = [one.method.retrieve(incoming) for _ in range(8)]
    assert len({tuple(b.indices.tolist()) for b in drawn if b is not None}) > 1


def test_memory_may_hold_classes_of_the_current_stage() -> None:
    one, incoming = in_second_stage(memory_batch_size=8)
    replay = one.method.retrieve(incoming)
    assert replay is not None
    assert sorted(int(y) >= 2 for y in replay.labels) == [False] * 4 + [True] * 4


def test_replay_can_be_held_to_old_classes() -> None:
    one, incoming = in_second_stage(memory_batch_size=8, replay_from="old")
    replay = one.method.retrieve(incoming)
    assert replay is not None
    assert len(replay) == 4
    assert (replay.labels < 2).all()


def test_nothing_is_old_in_the_first_stage() -> None:
    one = cell(replay_from="old")
    one.method.begin_stage(0)
    incoming = next(one.stream.batches(0))
    one.method.remember(incoming)
    assert one.method.retrieve(incoming) is None


@pytest.mark.parametrize(("choice", "count"), [("all", 8), ("repeat", 10), ("wait", None)])
def test_a_short_memory_is_replayed_as_chosen(choice: str, count: int | None) -> None:
    one, incoming = in_second_stage(memory_batch_size=10, short_memory=choice)
    replay = one.method.retrieve(incoming)
    assert (None if replay is None else len(replay)) == count
    if replay is not None:
        held = set(one.method.memory.indices.tolist())
        assert set(replay.indices.tolist()) <= held
        assert choice == "repeat" or set(replay.indices.tolist()) == held


@pytest.mark.parametrize("choice", ["all", "repeat", "wait"])
def test_a_memory_that_is_long_enough_is_replayed_without_repetition(choice: str) -> None:
    one, incoming = in_second_stage(memory_batch_size=8, short_memory=choice)
    replay = one.method.retrieve(incoming)
    assert replay is not None
    assert len(set(replay.indices.tolist())) == 8


@pytest.mark.parametrize("choice", ["all", "repeat", "wait"])
def test_an_empty_memory_replays_nothing(choice: str) -> None:
    one = cell(short_memory=choice)
    one.method.begin_stage(0)
    assert one.method.retrieve(next(one.stream.batches(0))) is None


@pytest.mark.parametrize(("choice", "first"), [("after", 4), ("before", 8)])
def test_the_memory_is_updated_before_or_after_the_steps(choice: str, first: int) -> None:
    one = cell(memory_update=choice, updates_per_batch=1)
    batches = one.stream.batches_in(0)
    one.run_stage()
    assert one.method.trained_images == first + 8 * (batches - 1)


def test_the_memory_is_updated_once_per_batch_whatever_the_updates() -> None:
    one = cell(updates_per_batch=3)
    one.run_stage()
    assert one.method.memory.seen == 4 * one.stream.batches_in(0)


def test_a_softmax_layer_reaches_all_classes_from_the_start() -> None:
    assert cell().method.net["softmax"].weight.shape == (10, 160)


def test_standardised_inputs_have_the_datasets_mean_and_spread() -> None:
    backbone = cell(normalise_inputs=True).method.net["backbone"]
    assert backbone.mean.flatten().tolist() == pytest.approx(DATASETS["digits"].mean)
    assert backbone.std.flatten().tolist() == pytest.approx(DATASETS["digits"].std)


def test_weights_follow_from_the_seed_and_not_from_the_global_generator() -> None:
    torch.manual_seed(1)
    one = cell()
    torch.manual_seed(2)
    assert_same(one.method.net, cell().method.net)
