import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from slow_twins import SMALL, assert_same, gradients, mean_loss, move, toy_cell
from torch import Tensor

from oclgrid.trainables.configs.er import ErConfig
from oclgrid.trainables.configs.ewc import EwcConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.registry import find
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import MethodConfig
from oclgrid.trainables.stream import Batch

RATE = 0.005
"""So low that a penalty of 100, which shows, is stable."""


def cell(memory_size: int = 0, **changes: Any) -> Cell:
    return fine(EwcConfig(**{**SMALL, "learning_rate": RATE, **changes}), memory_size)


def fine(config: MethodConfig, memory_size: int = 0) -> Cell:
    one = toy_cell(config, memory_size)
    one.method.net.double()  # rounding would grow over several steps
    return one


def double(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """Yield the first batches, as the networks here take them."""
    for _, b in zip(range(count), batches, strict=False):
        yield Batch(b.images.double(), b.labels, b.indices)


class SlowEwc:
    """6.2, tensor by tensor, with the gradient of the whole loss from autograd."""

    def __init__(self, of: Cell, *, weight: float, alpha: float, period: int) -> None:
        self.net = copy.deepcopy(of.method.net)
        self.weight, self.alpha, self.period = weight, alpha, period
        zeros = [torch.zeros_like(p) for p in self.net.parameters()]
        self.running, self.accumulated, self.normalised = zeros, list(zeros), list(zeros)
        self.anchor: list[Tensor] | None = None
        self.loss = 0.0

    def begin_stage(self) -> None:
        self.step_in_stage = 0

    def step(self, batch: Batch) -> None:
        self.step_in_stage += 1
        if self.step_in_stage % self.period == 0:
            self.running = [
                (1 - self.alpha) * fr + self.alpha * fa / self.period
                for fr, fa in zip(self.running, self.accumulated, strict=True)
            ]
            self.accumulated = [torch.zeros_like(fa) for fa in self.accumulated]
        loss = mean_loss(self.net, batch)
        if self.anchor is not None:
            rows = zip(self.normalised, self.net.parameters(), self.anchor, strict=True)
            loss = loss + self.weight * sum((fn * (p - a) ** 2).sum() for fn, p, a in rows)
        along = gradients(self.net, loss)
        self.accumulated = [fa + g**2 for fa, g in zip(self.accumulated, along, strict=True)]
        self.loss = float(loss.detach())
        move(self.net, along, RATE)

    def end_stage(self) -> None:
        self.anchor = [p.detach().clone() for p in self.net.parameters()]
        low = min(float(fr.min()) for fr in self.running)
        high = max(float(fr.max()) for fr in self.running)
        self.normalised = [(fr - low) / (high - low + 1e-32) for fr in self.running]


def joined(parts: list[Tensor]) -> Tensor:
    return torch.cat([p.flatten() for p in parts])


def trained(steps: tuple[int, ...], **changes: Any) -> tuple[Cell, SlowEwc]:
    """Return a cell and its twin after so many steps in each stage."""
    one = cell(**changes)
    config = one.spec.method
    assert isinstance(config, EwcConfig)
    twin = SlowEwc(
        one, weight=config.penalty_weight, alpha=config.fisher_alpha, period=config.fisher_period
    )
    for stage, count in enumerate(steps):
        one.method.begin_stage(stage)
        twin.begin_stage()
        for incoming in double(one.stream.batches(stage), count):
            one.method.learn(incoming, one.method.retrieve(incoming))
            one.method.remember(incoming)
            twin.step(incoming)
        one.method.end_stage()
        twin.end_stage()
    return one, twin


@pytest.mark.parametrize("weight", [0.0, 1.0, 100.0])
def test_training_over_three_stages_is_that_of_a_slow_twin(weight: float) -> None:
    one, twin = trained((4, 4, 1), penalty_weight=weight, fisher_period=3)
    assert_same(one.method.net, twin.net)
    assert float(one.method.losses[-1]) == pytest.approx(twin.loss, rel=1e-3)
    fisher = one.method.state()["fisher"]
    assert torch.allclose(fisher["running"], joined(twin.running).float(), rtol=1e-3, atol=1e-7)
    assert torch.allclose(
        fisher["accumulated"], joined(twin.accumulated).float(), rtol=1e-3, atol=1e-7
    )


def test_the_penalty_holds_parameters_near_where_a_stage_left_them() -> None:
    shifts = []
    for weight in (0.0, 100.0):
        before, after = (trained(n, penalty_weight=weight, fisher_period=3) for n in ((4,), (4, 4)))
        start, end = (joined(list(one.method.net.parameters())) for one, _ in (before, after))
        important = before[0].method.state()["fisher"]["running"].topk(20).indices
        shifts.append(float((end - start)[important].detach().abs().mean()))
    assert shifts[1] < 0.7 * shifts[0]


def test_what_was_accumulated_is_carried_into_the_next_stage() -> None:
    one, _ = trained((2,), fisher_period=3)
    before = one.method.state()["fisher"]["accumulated"].clone()
    assert before.any()
    one.method.begin_stage(1)
    assert torch.equal(one.method.state()["fisher"]["accumulated"], before)


def test_the_period_is_counted_from_the_start_of_a_stage() -> None:
    one, _ = trained((2, 2), fisher_period=3)
    assert not one.method.state()["fisher"]["running"].any()
    one, _ = trained((2, 3), fisher_period=3)
    assert one.method.state()["fisher"]["running"].any()


def test_without_a_penalty_it_is_fine_tuning() -> None:
    one, _ = trained((2, 2), penalty_weight=0.0, fisher_period=2)
    entry = find("er")
    plain = fine(ErConfig(**SMALL, learning_rate=RATE))
    assert isinstance(plain.method, entry.learner)
    for stage in (0, 1):
        plain.method.begin_stage(stage)
        for incoming in double(plain.stream.batches(stage), 2):
            plain.method.learn(incoming, None)
    assert_same(one.method.net, plain.method.net)


def test_no_exemplar_is_kept_or_replayed() -> None:
    one = cell(memory_size=8)
    one.method.begin_stage(0)
    incoming = next(one.stream.batches(0))
    one.method.remember(incoming)
    assert one.method.memory.filled == 0
    assert one.method.retrieve(incoming) is None


def test_a_loaded_state_brings_back_anchor_and_information() -> None:
    one, twin = trained((4,), fisher_period=3, penalty_weight=100.0)
    other = cell(fisher_period=3, penalty_weight=100.0)
    other.method.load(copy.deepcopy(one.method.state()))
    other.method.begin_stage(1)
    twin.begin_stage()
    for incoming in double(other.stream.batches(1), 3):
        other.method.learn(incoming, None)
        twin.step(incoming)
    assert_same(other.method.net, twin.net)


def test_a_state_can_be_loaded_twice() -> None:
    state = copy.deepcopy(trained((2,), fisher_period=3)[0].method.state())
    before = state["fisher"]["accumulated"].clone()
    one = cell(fisher_period=3)
    one.method.load(state)
    one.method.begin_stage(1)
    one.method.learn(next(double(one.stream.batches(1), 1)), None)
    assert torch.equal(state["fisher"]["accumulated"], before)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"penalty_weight": -1.0}, r"ewc.ewc_lambda must lie in \[0, 1000000\], got -1.0"),
        ({"penalty_weight": 2e6}, r"ewc.ewc_lambda must lie in \[0, 1000000\]"),
        ({"penalty_weight": float("nan")}, "must be a finite number, got nan"),
        ({"fisher_alpha": 1.5}, r"ewc.fisher_alpha must lie in \[0, 1\], got 1.5"),
        ({"fisher_period": 0}, "ewc.fisher_period must be at least 1, got 0"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        cell(**changes)


def test_a_union_is_refused_since_nothing_is_replayed() -> None:
    with pytest.raises(SpecError, match=r"ewc\.composition"):
        cell(composition="union")


@pytest.mark.parametrize("classifier", ["ncm-euclid", "ncm-mahalanobis"])
def test_a_classifier_by_exemplars_is_refused(classifier: str) -> None:
    with pytest.raises(SpecError, match=r"ewc\.classifier"):
        cell(classifier=classifier)
