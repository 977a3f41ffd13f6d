"""Our SGD is torch's, bit by bit, and goes on from its state; and it loads no compiler."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from oclgrid.trainables.optimiser import Sgd

SETTINGS = [{}, {"momentum": 0.9}, {"weight_decay": 1e-4}, {"momentum": 0.9, "weight_decay": 1e-2}]


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(n, generator=generator)) for n in (5, 1, 3)]


def turn(parameters: list[nn.Parameter], optimiser: Any, step: int) -> None:
    """Step with gradients that follow from the step; now and then one has none."""
    generator = torch.Generator().manual_seed(step)
    for i, parameter in enumerate(parameters):
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = None if (step + i) % 3 == 0 else gradient
    optimiser.step()


@pytest.mark.parametrize("settings", SETTINGS)
def test_it_is_torchs_and_goes_on_from_torchs_state_or_its_own(settings: dict[str, float]) -> None:
    ours, theirs, later = parameters(), parameters(), parameters()
    torchs, own = torch.optim.SGD(theirs, lr=0.1, **settings), Sgd(ours, 0.1, **settings)
    for step in range(4):
        turn(ours, own, step)
        turn(theirs, torchs, step)
    for state in (torchs.state_dict(), own.state()):
        for parameter, reached in zip(later, ours, strict=True):
            parameter.data.copy_(reached.data)
        resumed = Sgd(later, 0.1, **settings)
        resumed.load(state)
        for step in range(4, 8):
            turn(later, resumed, step)
    for step in range(4, 8):
        turn(ours, own, step)
        turn(theirs, torchs, step)
    for one, two, three in zip(ours, theirs, later, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


def test_a_loaded_state_replaces_what_was_there() -> None:
    made = parameters()
    used = Sgd(made, 0.1, momentum=0.9)
    turn(made, used, 1)
    assert used.state()["state"]
    used.load({"state": {}})
    assert used.state() == {"state": {}}


def test_gradients_are_forgotten() -> None:
    (parameter,) = made = parameters()[:1]
    parameter.grad = torch.ones(5)
    Sgd(made, 0.1).forget_gradients()
    assert parameter.grad is None


def test_a_worker_loads_no_compiler() -> None:
    program = """
import sys
from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables.datasets import data_root
from oclgrid.trainables.loop import Cell
cells = {"dataset": "digits", "memory": 10, "orders": 1, "method": "sdaf", "stream_fraction": 0.1}
(spec,) = parse_sweep({"sweep": "x", "cells": cells}, where="x").cells
cell = Cell(spec, data_root())
cell.run_stage()
cell.checkpoint()
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
