"""Result tables: what counts, how it is averaged, and the text of both formats."""

import statistics

import pytest

from oclgrid.platform.results import NUMBERS, CellRun
from oclgrid.platform.table import Row, Spread, rows, spread, to_csv, to_markdown
from oclgrid.search_spaces.sweep import Sweep, parse_sweep
from oclgrid.trainables.spec import CellSpec

END_ACCURACIES = (0.5, 0.6, 0.9)


def sweep(**fields: object) -> Sweep:
    cells = {"dataset": "digits", "memory": 10, "orders": 3, "method": "er", **fields}
    return parse_sweep({"sweep": "x", "cells": cells}, where="file.yaml")


def run(end_accuracy: float, *, status: str = "FINISHED", seconds: float = 20.0) -> CellRun:
    numbers = {"E": end_accuracy, "A": 0.75, "F": 0.125, "beta": 1.0, "stage": 5.0}
    return CellRun(
        run_id="0",
        status=status,
        stage=5,
        numbers={**numbers, "train_seconds": seconds, "inference_seconds": 2.0},
        error="",
        ended_at_ms=0,
    )


def found(cells: tuple[CellSpec, ...], *runs: CellRun) -> dict[str, CellRun]:
    return {spec.cell_id: run for spec, run in zip(cells, runs, strict=False)}


def only_row(*runs: CellRun, orders: int = 3) -> Row:
    cells = sweep(orders=orders).cells
    (row,) = rows(cells, found(cells, *runs))
    return row


def columns(markdown: str) -> list[list[str]]:
    return [[c.strip() for c in line.strip("|").split("|")] for line in markdown.splitlines()]


def test_mean_and_spread_are_over_class_orders() -> None:
    row = only_row(*map(run, END_ACCURACIES))
    assert (row.n, row.asked) == (3, 3)
    assert row.values["E"].mean == pytest.approx(2 / 3)
    assert row.values["E"].std == pytest.approx(statistics.stdev(END_ACCURACIES))


def test_the_standard_deviation_is_that_of_a_sample() -> None:
    assert spread([1.0, 3.0]) == Spread(mean=2.0, std=pytest.approx(2**0.5))


def test_one_class_order_has_no_standard_deviation() -> None:
    assert spread([0.5]) == Spread(mean=0.5, std=None)
    assert only_row(run(0.5), orders=1).values["E"] == Spread(mean=0.5, std=None)


def test_equal_values_have_a_spread_of_nothing() -> None:
    assert spread([0.1, 0.1, 0.1]).std == 0


@pytest.mark.parametrize("status", ["RUNNING", "KILLED", "FAILED", "SCHEDULED"])
def test_an_unfinished_run_does_not_count(status: str) -> None:
    row = only_row(run(0.5), run(0.9, status=status))
    assert (row.n, row.asked) == (1, 3)
    assert row.values["E"] == Spread(mean=0.5, std=None)


def test_a_run_of_another_cell_does_not_count() -> None:
    other = sweep(memory=11).cells
    (row,) = rows(sweep().cells, found(other, *map(run, END_ACCURACIES)))
    assert (row.n, row.values) == (0, {})


def test_seconds_are_those_of_training_and_inference() -> None:
    assert only_row(run(0.5, seconds=30.0)).values["seconds"].mean == 32.0


def test_cells_that_differ_in_more_than_the_order_have_rows_of_their_own() -> None:
    made = parse_sweep(
        {
            "sweep": "x",
            "cells": [
                {"dataset": "digits", "memory": 10, "orders": 2, "method": "er", "seed": seed}
                for seed in (0, 1)
            ],
        },
        where="file.yaml",
    )
    assert [row.asked for row in rows(made.cells, {})] == [2, 2]


def test_rows_stand_in_the_order_of_the_sweep() -> None:
    made = sweep(dataset=["digits", "cifar10"], memory=[20, 10], method=["sdaf", "er"])
    assert [(r.dataset, r.memory, r.method) for r in rows(made.cells, {})] == [
        (dataset, memory, method)
        for dataset in ("digits", "cifar10")
        for memory in (20, 10)
        for method in ("sdaf", "er")
    ]


def example() -> list[Row]:
    """Return two of two orders of one method, one of two of the next, none of the last."""
    cells = sweep(orders=2, method=["er", "scr", "sdaf"]).cells
    return rows(cells, found(cells, run(0.5, seconds=10.0), run(0.7, seconds=20.0), run(0.25)))


def test_csv_has_one_line_per_row_with_fractions_in_full() -> None:
    assert to_csv(example()) == (
        "dataset,memory,method,n,E_mean,E_std,A_mean,A_std,F_mean,F_std,beta_mean,beta_std,"
        "seconds_mean,seconds_std\n"
        "digits,10,er,2,0.600000,0.141421,0.750000,0.000000,0.125000,0.000000,"
        "1.000000,0.000000,17.000000,7.071068\n"
        "digits,10,scr,1,0.250000,,0.750000,,0.125000,,1.000000,,22.000000,\n"
        "digits,10,sdaf,0,,,,,,,,,,\n"
    )


def test_csv_without_seconds_says_nothing_of_a_clock() -> None:
    fast, slow = (to_csv([only_row(run(0.5, seconds=s))], seconds=False) for s in (1.0, 9.0))
    assert fast == slow
    assert fast.splitlines()[0].endswith(",beta_mean,beta_std")


def test_markdown_without_seconds_says_nothing_of_a_clock() -> None:
    fast, slow = (to_markdown([only_row(run(0.5, seconds=s))], seconds=False) for s in (1.0, 9.0))
    assert fast == slow
    assert columns(fast)[0] == ["dataset", "memory", "method", "n", "E %", "A %", "F", "beta"]


def test_markdown_shows_percent_with_the_spread_and_partial_groups() -> None:
    header, _, er, scr, sdaf = columns(to_markdown(example()))
    assert header == ["dataset", "memory", "method", "n", "E %", "A %", "F", "beta", "seconds"]
    assert er[:6] == ["digits", "10", "er", "2", "60.0 ± 14.1", "75.0 ± 0.0"]
    assert er[6:] == ["0.125 ± 0.000", "1.000 ± 0.000", "17 ± 7"]
    assert scr == ["digits", "10", "scr", "1 of 2", "25.0", "75.0", "0.125", "1.000", "22"]
    assert sdaf == ["digits", "10", "sdaf", "0 of 2", "-", "-", "-", "-", "-"]


def test_a_partial_group_says_of_how_many() -> None:
    assert columns(to_markdown([only_row(run(0.5))]))[2][3] == "1 of 3"


def test_markdown_lines_up() -> None:
    assert len({len(line) for line in to_markdown(example()).splitlines()}) == 1


@pytest.mark.parametrize("runs", [(), (run(0.5),), tuple(map(run, END_ACCURACIES))])
def test_markdown_rules_have_dashes_in_every_column(runs: tuple[CellRun, ...]) -> None:
    rule = columns(to_markdown([only_row(*runs)]))[1]
    assert len(rule) == 9
    assert all("-" in column for column in rule)


def test_every_number_of_the_store_has_its_columns() -> None:
    header = to_csv([]).strip().split(",")
    assert [f"{name}_{part}" for name in NUMBERS for part in ("mean", "std")] == header[4:-2]
