"""What the baselines and ablations promise beyond their algorithms: cost and resumption."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from slow_twins import toy_cell

import oclgrid.trainables as room
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.registry import all_methods
from oclgrid.trainables.stream import Batch

METHODS = list(all_methods())
COST = {"ewc": (80, 80), "agem": (80, 160)}
"""Images trained per incoming batch in the first and in a later stage, where not 160."""
STATEFUL = {"fisher_period": 1, "momentum": 0.5}
"""So that what a resumption could forget shows within a few steps."""


def cell(name: str, memory_size: int, **changes: Any) -> Cell:
    kind = all_methods()[name].config
    known = {k: v for k, v in changes.items() if k in kind.__dataclass_fields__}
    return toy_cell(kind(**known), memory_size, class_order=2, seed=1)


def train(one: Cell, incoming: Batch) -> None:
    """Algorithm 1 on one batch."""
    one.method.receive(incoming)
    for _ in range(one.spec.method.updates_per_batch):
        one.method.learn(incoming, one.method.retrieve(incoming))
    one.method.remember(incoming)


def run_stage(one: Cell, stage: int) -> None:
    """Train on the first batch of a stage."""
    one.method.begin_stage(stage)
    train(one, next(one.stream.batches(stage)))
    one.method.end_stage()


def saved(one: Cell) -> bytes:
    buffer = io.BytesIO()
    torch.save(one.method.state(), buffer)
    return buffer.getvalue()


def opened(content: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
    return state


def assert_equal_bits(one: Any, other: Any, where: str) -> None:
    """Compare two trees of tensors and plain values."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal_bits(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal_bits(a, b, f"{where}[{i}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


@pytest.mark.parametrize("name", METHODS)
def test_a_stage_after_a_resumption_from_any_other_ends_with_the_same_bits(name: str) -> None:
    small = {"batch_size": 4, "memory_batch_size": 4, "updates_per_batch": 1, **STATEFUL}
    small |= {"samples_per_class": 1, "candidates": 6, "learning_rate": 0.02}
    unbroken, states = cell(name, 4, **small), []
    for stage in range(5):
        run_stage(unbroken, stage)
        states.append(saved(unbroken))
    for stage in range(1, 5):
        other = cell(name, 4, **small)
        other.method.load(opened(states[stage - 1]))
        run_stage(other, stage)
        assert_equal_bits(opened(saved(other)), opened(states[stage]), f"{name} stage {stage}")


@pytest.mark.parametrize("name", METHODS)
def test_an_incoming_batch_costs_what_the_rule_of_equal_cost_allows(name: str) -> None:
    one = cell(name, 20)
    for stage, expected in zip((0, 1), COST.get(name, (160, 160)), strict=True):
        one.method.begin_stage(stage)
        batches = one.stream.batches(stage)
        one.method.remember(next(batches))
        before = one.method.trained_images
        train(one, next(batches))
        assert one.method.trained_images - before == expected
        one.method.end_stage()


def test_no_network_is_copied() -> None:
    folder = Path(room.__path__[0])
    sources = list(folder.rglob("*.py"))
    assert len(sources) > 20
    copying = [p.name for p in sources if re.search(r"deepcopy|import copy", p.read_text())]
    assert copying == []
