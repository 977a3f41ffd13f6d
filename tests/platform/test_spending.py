"""Budgets end a sweep in time, and estimates say what they rest on."""

from dataclasses import replace

import pytest

from oclgrid.platform.estimate import cost_lines
from oclgrid.platform.plan import Plan
from oclgrid.platform.results import CellRun, StageTime
from oclgrid.platform.spending import Ledger
from oclgrid.platform.stopping import Stop
from oclgrid.search_spaces.budget import Price, SweepBudget, amended
from oclgrid.search_spaces.sweep import Sweep, parse_sweep
from oclgrid.trainables.schema import SpecError

HOUR = 3600.0


def sweep(**keys: object) -> Sweep:
    cells = {"dataset": "digits", "memory": 10, "orders": 2, "method": ["er", "sdaf"]}
    fraction = {"stream_fraction": keys.pop("stream_fraction", 1.0)}
    return parse_sweep({"sweep": "x", "cells": {**cells, **fraction}, **keys}, where="file.yaml")


def run(stage: int, seconds: float, *, status: str = "RUNNING") -> CellRun:
    numbers = {"train_seconds": seconds, "inference_seconds": 0.5 * stage, "stage": float(stage)}
    return CellRun(run_id="r", status=status, stage=stage, numbers=numbers, error="", ended_at_ms=0)


def plan(made: Sweep, *runs: CellRun, **fields: object) -> Plan:
    found = {c.cell_id: r for c, r in zip(made.cells, runs, strict=False)}
    plain = Plan(cells=made.cells, found=found, is_filed=False)
    return replace(plain, **fields)  # type: ignore[arg-type]


def ledger(made: Sweep, asked: dict[str, float], *runs: CellRun) -> Ledger:
    known = plan(made, *runs, others={("digits", "er"): [StageTime(HOUR / 2, 0.0)]})
    return Ledger(made, asked, known, clock=lambda: 0.0)


def note(book: Ledger, made: Sweep, seconds: float, cell: int = 0) -> None:
    book.note({"cell_id": made.cells[cell].cell_id, "stage_seconds": seconds})


@pytest.mark.parametrize(
    ("budget", "price", "stages"),
    [
        ({"core_hours": 6}, {}, 3),
        ({"gpu_hours": 1}, {}, 4),
        ({"money": 10}, {"core_hour": 1, "gpu_hour": 2}, 4),
        ({"money": 10, "core_hours": 2}, {"core_hour": 1}, 1),
        ({}, {"core_hour": 1}, None),
    ],
)
def test_no_stage_begins_once_a_budget_is_spent(
    budget: dict[str, float], price: dict[str, float], stages: int | None
) -> None:
    made = sweep(budget=budget, price=price)
    book = ledger(made, {"CPU": 2.0, "GPU": 0.25})
    done = 0
    while not book.note({}) and done < 100:
        note(book, made, HOUR)
        done += 1
    assert done == (stages or 100)


def test_what_earlier_calls_spent_counts_and_hours_are_of_one_call() -> None:
    made = sweep(budget={"core_hours": 2, "hours": 1})
    assert ledger(made, {"CPU": 1.0}, run(1, 1.9 * HOUR)).reason == ""
    spent = ledger(made, {"CPU": 1.0}, run(1, HOUR), run(2, HOUR))
    assert spent.reason == "the budget of 2 core hours is spent"
    times = iter([0.0, 0.9 * HOUR, HOUR])
    book = Ledger(made, {"CPU": 1.0}, plan(made), clock=lambda: next(times))
    assert book.reason == ""
    assert book.reason == "the budget of 1 hours is spent"


def test_gpu_hours_without_a_gpu_are_refused() -> None:
    made = sweep(budget={"gpu_hours": 1})
    with pytest.raises(SpecError, match="a trial has no GPU; use core_hours"):
        ledger(made, {"CPU": 1.0})


def test_the_result_that_spends_a_budget_asks_for_the_stop() -> None:
    made = sweep(budget={"core_hours": 2})
    said: list[str] = []
    stop = Stop(said.append)
    stop.watch(ledger(made, {"CPU": 1.0}).note)
    stop.note({"cell_id": made.cells[0].cell_id, "stage_seconds": HOUR})
    assert not stop.is_asked
    stop.note({"cell_id": made.cells[0].cell_id, "stage_seconds": HOUR})
    assert stop.is_asked
    assert not stop.is_urgent
    assert said == [stop.reason] == ["the budget of 2 core hours is spent"]
    at_once = Stop()
    at_once.watch(ledger(made, {"CPU": 1.0}, run(1, 2 * HOUR)).note)
    assert at_once.is_asked


def test_what_happened_is_compared_with_what_was_expected_of_the_same_stages() -> None:
    made = sweep()
    book = ledger(made, {"CPU": 1.0})
    assert book.told == ""
    note(book, made, HOUR)
    note(book, made, 9 * HOUR, cell=2)  # of sdaf, which nobody has measured
    assert book.told == ("the stages took 60 min of one trial, 30 min were expected (+100 %)")


def test_the_rest_is_estimated_by_stages_of_the_same_dataset_and_method() -> None:
    made = sweep()
    estimate = plan(made, run(2, 20.0), run(5, 50.0, status="FINISHED")).estimate
    assert estimate.seconds == pytest.approx(3 * 10.5)
    assert estimate.unknown == 2
    assert estimate.basis == "by the stages measured in 2 cells of this sweep"


def test_where_the_sweep_has_none_other_cells_are_the_basis_scaled_to_the_stream() -> None:
    made = sweep(stream_fraction=0.1)
    others = {
        ("digits", "er"): [StageTime(999.0, 0.0)],
        ("digits", "sdaf"): [StageTime(100.0, 2.0), StageTime(300.0, 4.0)],
    }
    estimate = plan(made, run(5, 5.0, status="FINISHED"), others=others).estimate
    er, sdaf = 5 * (1.0 + 0.5), 2 * 5 * (20.0 + 3.0)
    assert estimate.seconds == pytest.approx(er + sdaf)
    assert estimate.basis == (
        "by the stages measured in 1 cells of this sweep and 2 cells of others"
    )


def test_a_training_that_cells_share_is_counted_once() -> None:
    variants = [{}, {"classifier": "softmax"}, {"tau_w": 0.6}]
    cells = {"dataset": "digits", "memory": 10, "orders": 2, "method": ["sdaf", "sdaf-euclid"]}
    given = {"sweep": "x", "cells": cells, "overrides": {"sdaf": variants}}
    made = parse_sweep(given, where="file.yaml")
    others = {("digits", m): [StageTime(10.0, 1.0)] for m in ("sdaf", "sdaf-euclid")}
    trained, tested = 4, 4  # cells that train, and those that take over
    expected = 5 * (trained * 11.0 + tested * 1.0)
    assert plan(made, others=others).estimate.seconds == pytest.approx(expected)
    done = run(5, 50.0, status="FINISHED")  # now the basis for sdaf is half a second a test
    expected = 5 * (3 * 10.5 + 2 * 0.5 + 2 * 1.0)
    assert plan(made, done, others=others).estimate.seconds == pytest.approx(expected)


def test_a_plan_says_hours_money_and_basis() -> None:
    made = sweep(resources={"cpus": 2, "gpu": 0.5}, price={"core_hour": 1, "gpu_hour": 10})
    others = {("digits", "er"): [StageTime(HOUR, 0.0)]}
    lines = list(cost_lines(made, plan(made, others=others).estimate))
    assert lines == [
        "about 20.0 core hours, 5.0 GPU hours, 70.00 of money, "
        "by the stages measured in 1 cells of others",
        "no measured stage yet to estimate 2 cells by; "
        "one core of an AMD EPYC would take 0.0087 hours for them",
    ]
    auto = replace(made, resources=sweep().resources)
    assert "without GPUs, as resources.gpu is auto; set it to a share to count them" in list(
        cost_lines(auto, plan(auto, others=others).estimate)
    )


def test_a_share_that_auto_means_is_counted_once_it_was_measured() -> None:
    made = sweep(price={"gpu_hour": 4.0})
    kinds = {(c.dataset, c.method.name) for c in made.cells}
    for peak, share, said in ((0.15, 0.2, " GPU hours"), (0.0, 0.0, "without GPUs")):
        drawn = plan(made, others={k: [StageTime(HOUR, 0.0, peak)] for k in kinds})
        assert drawn.measured_share == share
        assert said in " ".join(cost_lines(made, drawn.estimate, drawn.measured_share))


def test_the_command_line_goes_before_the_file() -> None:
    budget = amended(
        SweepBudget(hours=1, money=2), ["hours=3", "core_hours=0.5"], option="--budget"
    )
    assert budget == SweepBudget(hours=3, core_hours=0.5, money=2)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["hour=1"], "unknown name in --budget 'hour'; did you mean 'hours'?"),
        (["hours=soon"], "--budget must be NAME=AMOUNT, got 'hours=soon'"),
        (["hours"], "--budget must be NAME=AMOUNT, got 'hours'"),
        (["hours=0"], "budget.hours must be above 0, got 0.0"),
        (["money=nan"], "budget.money must be above 0, got nan"),
    ],
)
def test_a_budget_that_means_nothing_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(SpecError) as error:
        amended(SweepBudget(), texts, option="--budget")
    assert str(error.value) == said


def test_money_needs_a_price() -> None:
    with pytest.raises(SpecError, match=r"budget.money needs a price; add price: .*--price"):
        SweepBudget(money=1).check(Price())
    with pytest.raises(SpecError, match=r"price.core_hour must not be negative, got -1"):
        sweep(price={"core_hour": -1})
