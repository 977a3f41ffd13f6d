"""Result tables: what counts, how it is averaged, and the text of both formats."""

import csv
import io
import re
import statistics
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from oclgrid.platform.results import NUMBERS, CellRun
from oclgrid.platform.spread import Spread, spread
from oclgrid.platform.table import Row, best, notes, rows
from oclgrid.platform.table_formats import to_csv, to_latex, to_markdown, to_parquet
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


def table_lines(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("|")]


def columns(markdown: str) -> list[list[str]]:
    return [[c.strip() for c in x.strip("|").split("|")] for x in table_lines(markdown)]


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
    header, er, scr, sdaf = to_csv(example()).splitlines()
    assert header.startswith(
        "dataset,memory,method,n,E_mean,E_std,A_mean,A_std,F_mean,F_std,beta_mean,beta_std,"
        "seconds_mean,seconds_std,asked,label,departures,group_id,E_paper,"
    )
    assert er.startswith(
        "digits,10,er,2,0.600000,0.141421,0.750000,0.000000,0.125000,0.000000,"
        "1.000000,0.000000,17.000000,7.071068,2,er,,"
    )
    assert scr.startswith("digits,10,scr,1,0.250000,,0.750000,,0.125000,,1.000000,,22.000000,,2,")
    assert sdaf.startswith("digits,10,sdaf,0,,,,,,,,,,,2,sdaf,,")


def test_csv_without_seconds_says_nothing_of_a_clock() -> None:
    fast, slow = (to_csv([only_row(run(0.5, seconds=s))], seconds=False) for s in (1.0, 9.0))
    assert fast == slow
    assert "seconds" not in fast


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
    assert len({len(line) for line in table_lines(to_markdown(example()))}) == 1


@pytest.mark.parametrize("runs", [(), (run(0.5),), tuple(map(run, END_ACCURACIES))])
def test_markdown_rules_have_dashes_in_every_column(runs: tuple[CellRun, ...]) -> None:
    rule = columns(to_markdown([only_row(*runs)]))[1]
    assert len(rule) == 9
    assert all("-" in column for column in rule)


def test_every_number_of_the_store_has_its_columns() -> None:
    header = to_csv(example()).splitlines()[0].split(",")
    wanted = [f"{name}_{part}" for name in NUMBERS for part in ("mean", "std")]
    assert header[4 : 4 + len(wanted)] == wanted


def test_a_whole_table_without_the_paper_has_no_notes() -> None:
    assert notes([only_row(*map(run, END_ACCURACIES))]) == []
    assert notes([only_row(run(0.5))]) == ["1 of 3 cells are finished."]


def twins() -> list[Row]:
    """Return two rows of one method that differ in more than the class order."""
    base = {"dataset": "digits", "memory": 10, "orders": 1, "method": "er"}
    other = {**base, "stream_fraction": 0.5, "seed": 3}
    made = parse_sweep({"sweep": "x", "cells": [base, other]}, where="file.yaml")
    return rows(made.cells, found(made.cells, run(0.5), run(0.7)))


def test_rows_of_one_name_say_what_differs() -> None:
    assert [row.label for row in twins()] == [
        "er",
        "er (stream_fraction 0.5, seed 3)",
    ]
    assert [row.label for row in example()] == ["er", "scr", "sdaf"]


def test_each_variant_is_told_by_what_it_changes() -> None:
    variants = [{}, {"head_norm": True}, {"lambda": 1.0, "head_norm": True}]
    made = parse_sweep(
        {
            "sweep": "x",
            "cells": {"dataset": "digits", "memory": 10, "orders": 1, "method": "sdaf"},
            "overrides": {"sdaf": variants},
        },
        where="file.yaml",
    )
    told = ["sdaf", "sdaf (head_norm true)", "sdaf (lambda 1, head_norm true)"]
    assert [row.label for row in rows(made.cells, {})] == told
    assert [c.title for c in made.cells] == [f"{t} digits M=10 order 0" for t in told]


def test_settings_go_by_the_names_of_a_sweep_file() -> None:
    fields = {"lambda": 1.0, "long": {"crop_min": 0.25}}
    made = parse_sweep(
        {
            "sweep": "x",
            "cells": {"dataset": "cifar10", "memory": 500, "method": "sdaf"},
            "overrides": {"sdaf": fields},
        },
        where="file.yaml",
    )
    (row,) = rows(made.cells, {})
    assert row.departures == {"lambda": "1", "long.crop_min": "0.25"}


def test_the_best_is_chosen_among_what_can_be_compared() -> None:
    cells = sweep(orders=1, memory=[10, 20], method=["er", "scr"]).cells
    table = rows(cells, found(cells, run(0.5), run(0.7), run(0.9), run(0.9)))
    assert best(table, "E") == {1, 2, 3}  # 0.7 of one memory size; a tie in the other
    assert best(twins(), "E") == set()  # two protocols: nothing to compare with
    assert best(table[:1], "E") == set()


def test_the_best_forgets_least() -> None:
    cells = sweep(orders=1, method=["er", "scr"]).cells
    worse = replace(run(0.5), numbers={**run(0.5).numbers, "F": 0.5})
    assert best(rows(cells, found(cells, run(0.5), worse)), "F") == {0}


def test_latex_is_a_booktabs_table_with_the_best_in_bold() -> None:
    cells = sweep(orders=2, memory=[10, 20], method=["er", "scr"]).cells
    ends = (0.5, 0.5, 0.7, 0.7, 0.9, 0.9, 0.8, 0.8)
    text = to_latex(rows(cells, found(cells, *map(run, ends))))
    begins, ends_ = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert begins == ends_[::-1] == ["table", "tabular"]
    columns_ = re.search(r"begin{tabular}{(\w+)}", text)
    assert columns_ is not None
    body = [line for line in text.splitlines() if line.endswith("\\\\")]
    assert {line.count("&") + 1 for line in body} == {len(columns_[1])}
    assert [line for line in text.splitlines() if line.endswith("rule")] == [
        "\\toprule", "\\midrule", "\\midrule", "\\bottomrule"]  # fmt: skip
    assert body[2].count("\\textbf{70.0 $\\pm$ 0.0}") == 1
    assert body[3].count("\\textbf{90.0 $\\pm$ 0.0}") == 1
    assert "\\textbf{50" not in text


def test_latex_escapes_what_it_would_misread() -> None:
    (row,) = rows(sweep(orders=1).cells, {})
    text = to_latex([replace(row, label="my_own & 100% #1 ^~\\{}")])
    assert (
        "my\\_own \\& 100\\% \\#1 "
        "\\textasciicircum{}\\textasciitilde{}\\textbackslash{}\\{\\}" in text
    )


def test_parquet_holds_what_csv_says() -> None:
    table = pq.read_table(io.BytesIO(to_parquet(example()))).to_pylist()
    written = list(csv.DictReader(to_csv(example()).splitlines()))
    assert [list(line) for line in table] == [list(line) for line in written]
    assert table[0]["E_mean"] == pytest.approx(0.6)
    assert table[0]["E_paper"] is table[2]["E_mean"] is None
    assert [line["n"] for line in table] == [2, 1, 0]
