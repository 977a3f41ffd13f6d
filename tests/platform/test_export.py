"""Exports: every finished cell once, none ever lost, equal content in equal bytes."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oclgrid.platform.cli import main
from oclgrid.platform.export import CELLS, Export, export_cells, read_rows, spec_of
from oclgrid.platform.export_page import export_page
from oclgrid.platform.results import CellRun, SweepRun
from oclgrid.search_spaces.sweep import Sweep, parse_sweep
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec

STAGES = [0.9, 0.8, 0.7, 0.6, 0.5]
LIVE_TOLD = {"live_batches": [3.0, 9.0], "live/gamma": [1.0, 0.9]}


@dataclass
class Answers:
    """A store that answers from memory; a claim on real ones is in tests/contracts."""

    runs: dict[str, CellRun] = field(default_factory=dict)
    experiment_id: str | None = "1"

    def cells(self, specs: Iterable[CellSpec]) -> dict[str, CellRun]:
        ids = {spec.cell_id for spec in specs}
        return {cell_id: run for cell_id, run in self.runs.items() if cell_id in ids}

    def stage_accuracies(self, run_ids: Iterable[str]) -> dict[str, list[float]]:
        return dict.fromkeys(run_ids, STAGES)

    def live(self, run_ids: Iterable[str]) -> dict[str, dict[str, list[float]]]:
        return dict.fromkeys(run_ids, LIVE_TOLD)

    def sweep(self, name: str) -> SweepRun | None:
        return None

    def artifact(self, run_id: str, path: str) -> bytes | None:
        return None


def sweep(name: str = "x", **fields: object) -> Sweep:
    cells = {"dataset": "digits", "memory": 10, "orders": 2, "method": ["er", "sdaf"], **fields}
    return parse_sweep({"sweep": name, "cells": cells}, where="file.yaml")


def run(run_id: str, *, end_accuracy: float = 0.5, status: str = "FINISHED") -> CellRun:
    numbers = {"E": end_accuracy, "A": 0.7, "F": 0.1, "beta": 0.9, "stage": 5.0, "cka/seen": 0.8}
    seconds = {"train_seconds": 20.0, "inference_seconds": 2.0, "trained_images": 100.0}
    return CellRun(
        run_id=run_id,
        status=status,
        stage=5,
        numbers={**numbers, **seconds, "live/loss": 1.5},
        error="",
        ended_at_ms=1_700_000_000_000,
        tags={
            "commit": "c0ffee",
            "version.torch": "2",
            "hardware.cpu": "x",
            "cell_id": "-",
            "analysis.cka": "digest",
        },
    )


def finished(made: Sweep, **fields: float) -> Answers:
    return Answers({c.cell_id: run(f"run {c.cell_id}", **fields) for c in made.cells})


def rows(folder: Path) -> list[dict[str, object]]:
    return list(pq.read_table(folder / CELLS).to_pylist())


def test_a_row_holds_what_a_cell_is_what_came_out_and_where_from(tmp_path: Path) -> None:
    made = sweep(orders=1, method="sdaf")
    assert export_cells(made, finished(made), tmp_path) == 1
    (row,) = rows(tmp_path)
    (spec,) = made.cells
    assert (row["cell_id"], row["group_id"]) == (spec.cell_id, spec.group_id)
    assert (row["dataset"], row["memory"], row["order"]) == ("digits", 10, 0)
    assert (row["seed"], row["method"], row["protocol"]) == (0, "sdaf", "test")
    assert row["sweep"] == "x"
    assert row["method.self_supervised_weight"] == 1.5
    assert row["method.long.crop_min"] == 0.5
    assert (row["E"], row["A"], row["F"], row["beta"]) == (0.5, 0.7, 0.1, 0.9)
    assert (row["train_seconds"], row["inference_seconds"]) == (20.0, 2.0)
    assert row["stage_accuracies"] == STAGES
    assert row["cka/seen"] == 0.8
    assert (row["commit"], row["version.torch"], row["hardware.cpu"]) == ("c0ffee", "2", "x")
    assert row["finished_at_ms"] == 1_700_000_000_000
    assert {k: v for k, v in row.items() if "live" in k} == LIVE_TOLD


@pytest.mark.parametrize("arrival", ["drawn", "natural"])
def test_a_row_tells_which_cell_it_is_of(tmp_path: Path, arrival: str) -> None:
    made = sweep(arrival=arrival)
    export_cells(made, finished(made), tmp_path)
    assert {spec_of(row) for row in read_rows(tmp_path / CELLS).values()} == set(made.cells)


def test_only_finished_cells_are_exported(tmp_path: Path) -> None:
    made = sweep()
    answers = finished(made)
    unfinished = made.cells[0].cell_id
    answers.runs[unfinished] = replace(answers.runs[unfinished], status="RUNNING")
    assert export_cells(made, answers, tmp_path) == 3
    assert unfinished not in {row["cell_id"] for row in rows(tmp_path)}


def test_rows_are_replaced_by_finished_ones_only_and_never_lost(tmp_path: Path) -> None:
    made = sweep()
    export_cells(made, finished(made), tmp_path)
    first, second = made.cells[:2]
    later = {
        first.cell_id: run("again", end_accuracy=0.6),
        second.cell_id: run("again", end_accuracy=0.6, status="FAILED"),
    }
    export_cells(made, Answers(later), tmp_path)
    found = {row["cell_id"]: row["E"] for row in rows(tmp_path)}
    assert found == {c.cell_id: 0.6 if c is first else 0.5 for c in made.cells}


@pytest.mark.parametrize("is_same", [True, False])
def test_analyses_outlive_a_newer_result_only_where_it_is_the_same(
    is_same: bool, tmp_path: Path
) -> None:
    made = sweep(orders=1, method="sdaf")
    export_cells(made, finished(made), tmp_path)
    again = Answers({made.cells[0].cell_id: replace(run("again"), numbers={"E": 0.5}, tags={})})
    again.stage_accuracies = lambda ids: dict.fromkeys(ids, STAGES if is_same else STAGES[::-1])
    export_cells(made, again, tmp_path)
    (row,) = rows(tmp_path)
    assert row["run_id"] == "again"
    assert ("cka/seen" in row, "analysis.cka" in row) == (is_same, is_same)


def test_other_sweeps_keep_their_rows(tmp_path: Path) -> None:
    one, two = sweep("one"), sweep("two", memory=20, method="scr")
    export_cells(one, finished(one), tmp_path)
    export_cells(two, finished(two), tmp_path)
    ids = {c.cell_id for c in (*one.cells, *two.cells)}
    assert {row["cell_id"] for row in rows(tmp_path)} == ids


def test_equal_content_is_equal_bytes_in_whatever_order_it_came(tmp_path: Path) -> None:
    one, two = sweep("one"), sweep("two", memory=20)
    both = finished(one).runs | finished(two).runs
    for folder, order in (("a", (one, two)), ("b", (two, one)), ("c", (one, two, one))):
        for made in order:
            export_cells(made, Answers(both), tmp_path / folder)
    contents = {(tmp_path / f / CELLS).read_bytes() for f in "abc"}
    assert len(contents) == 1


def test_two_exports_at_once_lose_nothing(tmp_path: Path) -> None:
    made = [sweep(f"s{m}", memory=m) for m in range(1, 9)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda s: export_cells(s, finished(s), tmp_path), made))
    assert len(rows(tmp_path)) == sum(len(s.cells) for s in made)


def test_what_was_exported_is_read_back(tmp_path: Path) -> None:
    made = sweep()
    answers = finished(made)
    export_cells(made, answers, tmp_path)
    export = Export(tmp_path / CELLS)
    found = export.cells(made.cells[:1])
    (cell_id,) = found
    assert cell_id == made.cells[0].cell_id
    numbers = dict(answers.runs[cell_id].numbers)
    del numbers["live/loss"], numbers["stage"]
    assert found[cell_id].numbers == numbers
    assert found[cell_id].is_finished
    assert found[cell_id].tags["analysis.cka"] == "digest"
    assert export.stage_accuracies([f"run {cell_id}"]) == {f"run {cell_id}": STAGES}
    assert export.live([f"run {cell_id}"]) == {f"run {cell_id}": LIVE_TOLD}


def test_a_killed_export_leaves_the_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sweep()
    export_cells(made, finished(made), tmp_path)
    before = (tmp_path / CELLS).read_bytes()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        export_cells(made, finished(made, end_accuracy=0.9), tmp_path)
    assert (tmp_path / CELLS).read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [CELLS]


def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / CELLS).write_bytes(b"not Parquet")
    with pytest.raises(SpecError, match="move it away"):
        export_cells(sweep(), finished(sweep()), tmp_path)
    assert (tmp_path / CELLS).read_bytes() == b"not Parquet"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="choose another with --to"):
        export_cells(sweep(), finished(sweep()), tmp_path / "file" / "below")


def test_a_table_comes_from_an_export_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "sweep: x\ncells: {dataset: digits, memory: 10, orders: 2, method: [er, sdaf]}\n"
    Path("x.yaml").write_text(text)
    export_cells(sweep(), finished(sweep()), Path())
    assert main(["table", "x.yaml", "--from", CELLS]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("50.0 ± 0.0") == 2
    assert main(["table", "x.yaml", "--from", "nowhere.parquet"]) == 2
    assert "`oclgrid export` makes one" in capsys.readouterr().err
    assert main(["table", "x.yaml", "--from", CELLS, "--store", "there"]) == 2
    assert "give one of them" in capsys.readouterr().err


def test_the_page_shows_every_stage_and_where_each_number_comes_from(tmp_path: Path) -> None:
    made = sweep()
    unfinished, *others = made.cells
    answers = finished(made)
    del answers.runs[unfinished.cell_id]
    export_cells(made, answers, tmp_path)
    files = export_page(made, Export(tmp_path / CELLS))
    assert list(files) == ["x.md", "x-stages.svg"]
    page = files["x.md"].decode()
    assert "| digits  | 10     | sdaf   | 90.0 ± 0.0 | 80.0 ± 0.0 |" in page
    assert "](x-stages.svg)" in page
    for spec in others:
        assert f"| {spec.title}" in page
        origin = f"{spec.cell_id} | 50.0 | 2023-11-14 22:13 UTC | c0ffee | 2     | x      "
        assert origin in page
    assert unfinished.cell_id not in page
    assert b">sdaf<" in files["x-stages.svg"]


def test_a_sweep_of_which_nothing_is_finished_has_a_page_without_pictures(tmp_path: Path) -> None:
    export_cells(sweep(), Answers(), tmp_path)
    files = export_page(sweep(), Export(tmp_path / CELLS))
    assert list(files) == ["x.md"]
    assert b"0 of 2" in files["x.md"]


def test_one_export_is_merged_into_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, memory in (("one", 10), ("two", 20)):
        made = sweep(name, memory=memory)
        export_cells(made, finished(made), Path(name))
        export_cells(made, finished(made), Path("both"))
        cells = f"{{dataset: digits, memory: {memory}, orders: 2, method: [er, sdaf]}}"
        Path(f"{name}.yaml").write_text(f"sweep: {name}\ncells: {cells}\n")
    assert main(["export", "two.yaml", "--from", f"two/{CELLS}", "--to", "one"]) == 0
    assert "4 of 4 cells" in capsys.readouterr().out
    assert Path("one", CELLS).read_bytes() == Path("both", CELLS).read_bytes()
    assert Path("one", "two-stages.svg").exists()


@pytest.mark.slow
def test_what_cannot_be_found_for_want_of_decoded_data_is_said(
    tmp_path: Path, server_uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--store", server_uri, "--data", str(tmp_path), "--to", str(tmp_path)]
    assert main(["export", "table1-miniimagenet", *where]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("0 of ")
    assert "oclgrid: miniimagenet is not decoded" in shown.err
