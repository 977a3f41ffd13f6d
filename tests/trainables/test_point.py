"""A point runs its cells one after the other and tells every stage, however often it is resumed."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables.analysis import Analysis, Findings
from oclgrid.trainables.cell import LEAVING_SECONDS, Assignment, Filed, OutOfMemoryError
from oclgrid.trainables.datasets import data_root
from oclgrid.trainables.loop import Cell, Progress, StageRecord
from oclgrid.trainables.point import PointTrainable
from oclgrid.trainables.predictor import Predictor
from oclgrid.trainables.spec import CellSpec

pytestmark = pytest.mark.usefixtures("one_thread")


def specs() -> tuple[CellSpec, ...]:
    grid = {"dataset": "digits", "memory": 10, "orders": 2, "method": "er"}
    cells = {**grid, "protocol": "validation", "stream_fraction": 0.05}
    return parse_sweep({"sweep": "point", "cells": cells}, where="test").cells


class Shelf:
    """A log in memory that outlives attempts."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.calls: list[str] = []
        self.waits: list[float] = []

    def claim(self) -> None:
        pass

    def filed(self) -> Filed:
        return Filed(is_finished="finish" in self.calls, analyses={})

    def begin(self) -> None:
        self.calls.append("begin")

    def checkpoints(self) -> Iterator[bytes]:
        return reversed(self.kept)

    def checkpoint(self, stage: int) -> bytes | None:
        return self.kept[stage - 1]

    def stage_done(self, records: list[StageRecord], checkpoint: bytes | None) -> None:
        if checkpoint is not None:
            self.kept.append(checkpoint)
            self.calls.append(f"stage {records[-1].stage}")

    def undelivered(self, seconds: float) -> str:
        self.waits.append(seconds)
        return ""

    def trouble(self) -> str:
        return ""

    def progress(self, progress: Progress) -> None:
        pass

    def finish(self, records: list[StageRecord], predictor: Predictor) -> None:
        self.calls.append("finish")

    def analysed(self, analysis: Analysis, findings: Findings, *, stage: int) -> None:
        raise AssertionError

    def analyses_ended(self, failed: dict[str, str]) -> None:
        raise AssertionError

    def fail(self, reason: str, details: str) -> None:
        self.calls.append(reason)


def attempt(
    shelves: list[Shelf],
    cells: tuple[CellSpec, ...] | None = None,
    *,
    share: dict[str, float] | None = None,
) -> PointTrainable:
    """Return an attempt at the point, outside of Ray, where a trial owns nothing."""
    work = [Assignment(c, s) for c, s in zip(cells or specs(), shelves, strict=True)]

    class Point(PointTrainable):
        def setup(self, config: dict[str, Any]) -> None:  # type: ignore[override]
            super().setup(config, lambda _: work, None, str(data_root()), share or {})

        def _report(self, progress: Progress) -> None:
            pass

    return Point({})


def told(point: PointTrainable, steps: int) -> list[dict[str, Any]]:
    kept = ("cell_id", "stage", "step", "A", "mean_A", "mean_F", "cell_done", "point_done")
    return [{k: r[k] for k in kept if k in r} for r in (point.step() for _ in range(steps))]


@pytest.fixture(scope="module")
def unbroken(one_thread: None) -> list[dict[str, Any]]:
    return told(attempt([Shelf(), Shelf()]), 10)


def test_a_point_is_the_mean_of_its_class_orders(unbroken: list[dict[str, Any]]) -> None:
    first, second = (c.cell_id for c in specs())
    assert [r["cell_id"] for r in unbroken] == [first] * 5 + [second] * 5
    assert [r["stage"] for r in unbroken] == [1, 2, 3, 4, 5] * 2
    assert [r["step"] for r in unbroken] == list(range(1, 11))
    assert [r["point_done"] for r in unbroken] == [False] * 9 + [True]
    assert unbroken[4]["mean_A"] == unbroken[4]["A"]
    for i in range(5, 10):
        assert unbroken[i]["mean_A"] == pytest.approx((unbroken[4]["A"] + unbroken[i]["A"]) / 2)
    assert "mean_F" not in unbroken[0]  # nothing can be forgotten in the first stage
    assert unbroken[5]["mean_F"] == unbroken[4]["mean_F"]


@pytest.mark.parametrize("steps", [3, 5, 7])
def test_a_resumed_point_tells_all_its_stages_and_trains_none_twice(
    steps: int, unbroken: list[dict[str, Any]]
) -> None:
    shelves = [Shelf(), Shelf()]
    assert told(attempt(shelves), steps) == unbroken[:steps]
    assert told(attempt(shelves), 10) == unbroken
    for shelf in shelves:
        whole = [*(f"stage {stage}" for stage in range(1, 6)), "finish"]
        assert [call for call in shelf.calls if call != "begin"] == whole


def test_a_cell_killed_before_it_was_closed_is_closed(unbroken: list[dict[str, Any]]) -> None:
    shelves = [Shelf(), Shelf()]
    told(attempt(shelves), 5)
    shelves[0].calls.remove("finish")
    assert told(attempt(shelves), 10) == unbroken
    assert shelves[0].calls[-1] == "finish"


def test_a_diverging_cell_ends_the_point_with_the_reason() -> None:
    cells = tuple(
        replace(c, method=replace(c.method, learning_rate=100.0, updates_per_batch=50))
        for c in specs()
    )
    shelves = [Shelf(), Shelf()]
    point = attempt(shelves, cells)
    result = point.step()
    while not result["done"]:
        result = point.step()
    assert result["error"].startswith("DivergedError")
    assert shelves[0].calls[-1] == result["error"]
    assert shelves[1].calls == []


def failing(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """Let the next stages fail, one with each error."""
    whole, left = Cell.run_stage, list(errors)

    def run_stage(cell: Cell, report: Callable[[Progress], None]) -> StageRecord:
        if left:
            raise left.pop(0)
        return whole(cell, report)

    monkeypatch.setattr(Cell, "run_stage", run_stage)


def test_a_stage_in_which_the_program_fails_is_tried_again(
    unbroken: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    point = attempt([Shelf(), Shelf()])
    assert told(point, 2) == unbroken[:2]
    failing(monkeypatch, ValueError("a bit flipped"))
    third = point.step()
    assert third["retried"] == "ValueError: a bit flipped"
    assert third["A"] == unbroken[2]["A"]
    assert told(point, 7) == unbroken[3:]


def test_a_program_that_fails_twice_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    shelves = [Shelf(), Shelf()]
    failing(monkeypatch, ValueError("wrong"), ValueError("still wrong"))
    result = attempt(shelves).step()
    assert result["error"] == "ValueError: still wrong"
    assert shelves[0].calls[-1] == result["error"]


def test_memory_that_runs_out_asks_for_more_of_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    short = RuntimeError("DefaultCPUAllocator: can't allocate memory")
    for error in (MemoryError(), torch.OutOfMemoryError("CUDA"), short):
        failing(monkeypatch, error)
        with pytest.raises(OutOfMemoryError):
            attempt([Shelf(), Shelf()]).step()
    failing(monkeypatch, MemoryError(), MemoryError())
    with_more = attempt([Shelf(), Shelf()], share={"CPU": 1.0})  # which is not what it owns
    assert "raise resources in the sweep" in with_more.step()["error"]


def test_a_trial_that_is_stopped_lets_arrive_what_it_has_filed() -> None:
    shelves = [Shelf(), Shelf()]
    trial = attempt(shelves)
    trial.step()
    assert shelves[0].waits == []
    trial.stop()
    assert shelves[0].waits == [LEAVING_SECONDS]
