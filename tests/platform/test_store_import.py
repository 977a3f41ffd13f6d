"""Exports come back into a store to the byte, whatever happens on the way."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oclgrid.platform.claims import Driver
from oclgrid.platform.export import CELLS, Row, export_cells, read_rows, spec_of
from oclgrid.platform.reading import Folder
from oclgrid.platform.results import PARENT
from oclgrid.platform.server import EmbeddedServer
from oclgrid.platform.store import Store
from oclgrid.platform.store_copy import COPYING, Copied, CopyError
from oclgrid.platform.store_import import import_rows
from oclgrid.search_spaces.sweep import Sweep, parse_sweep
from oclgrid.trainables.schema import SpecError

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[2] / "results" / CELLS
GRID = {"dataset": "digits", "memory": 10, "orders": 2, "method": ["er", "sdaf"]}
SWEEP = f"sweep: brought\ncells: {GRID}\n"
FILED = {"E": 0.5, "A": 0.7, "F": 0.1, "beta": 0.9, "train_seconds": 20.0, "inference_seconds": 2.0,
         "trained_images": 100.0, "cka/seen": 0.8, "stage": 5.0}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    with EmbeddedServer(folder) as server:
        server.wait()
        yield Store(server.uri, folder=folder)


@pytest.fixture
def empty(store: Store) -> Store:
    for run in list(store.tagged_runs(kind="cell")):
        store.delete(run.info.run_id)
    return store


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return parse_sweep({"sweep": "brought", "cells": GRID}, where="test")


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory, store: Store, sweep: Sweep
) -> dict[str, Row]:
    """Rows of four finished cells, as the store gave them."""
    for spec in sweep.cells:
        run_id = store.create_cell(spec, tags={"commit": "c0ffee", "sweep": "brought"})
        for stage in range(1, 6):
            numbers = FILED | {"E": 1 - stage / 10, "stage": stage, "live/gamma": 1 / stage}
            store.log_numbers(run_id, numbers, step=stage, at=1_700_000_000_000 + stage)
        store.log_numbers(run_id, {"live/loss": 1.5}, step=5, at=1_700_000_000_005)
        store.set_status(run_id, "FINISHED")
    folder = tmp_path_factory.mktemp("exported")
    assert export_cells(sweep, store, folder) == len(sweep.cells)
    return read_rows(folder / CELLS)


def brought(rows: dict[str, Row], store: Store) -> Copied:
    with Driver(store, beat_seconds=1e9) as driver:
        return import_rows(rows, store, driver.claimant, lambda *_: None)


def test_what_was_published_comes_back_to_the_byte(store: Store, tmp_path: Path) -> None:
    rows = read_rows(RESULTS)
    done = brought(rows, store)
    assert (done.copied, done.refused) == (len(rows), {})
    cells = tuple(spec_of(row) for row in rows.values())
    every = replace(parse_sweep({"sweep": "x", "cells": GRID}, where="test"), cells=cells)
    export_cells(every, store, tmp_path)
    assert (tmp_path / CELLS).read_bytes() == RESULTS.read_bytes()
    assert brought(rows, store) == Copied(present=len(rows))


def test_an_import_cut_short_is_made_whole_and_each_cell_has_one_run(
    exported: dict[str, Row], empty: Store, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = dict(list(exported.items())[:1])
    monkeypatch.setattr(empty, "live", lambda _: {})
    with pytest.raises(CopyError, match=r"live/gamma, live/loss, live_batches of .* copy again"):
        brought(lost, empty)
    monkeypatch.undo()
    (unfinished,) = empty.cells(sweep.cells).values()
    assert not unfinished.is_finished
    assert COPYING in unfinished.tags
    assert brought(exported, empty).copied == len(exported)
    runs = list(empty.tagged_runs(kind="cell"))
    assert {run.data.tags["cell_id"] for run in runs} == exported.keys()
    assert len(runs) == len(exported)
    assert not any(COPYING in run.data.tags for run in runs)


def test_a_finished_cell_stays_and_one_that_somebody_trains_is_left_out(
    exported: dict[str, Row], empty: Store, sweep: Sweep
) -> None:
    trained, busy, begun, missing = sweep.cells
    finished = empty.create_cell(trained, tags={})
    empty.set_status(finished, "FINISHED")
    for spec in (busy, begun):
        empty.create_cell(spec, tags={})
    with Driver(empty, beat_seconds=1e9) as other:
        other.claimant.claim(empty, busy.cell_id)
        done = brought(exported, empty)
    assert (done.copied, done.present, list(done.busy)) == (2, 1, [busy.title])
    found = empty.cells(sweep.cells)
    assert found[trained.cell_id].run_id == finished
    assert not found[busy.cell_id].is_finished
    assert found[begun.cell_id].is_finished
    assert found[missing.cell_id].is_finished


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"method.learning_rate": 0.2}, "by its settings it is another cell"),
        ({"method.learning_rate": "fast"}, "learning_rate must be a finite number"),
        ({"method.novel": 1}, "not a cell of this version of oclgrid"),
        ({"method": "novel"}, "unknown method 'novel'"),
        ({"memory": None}, "memory"),
        ({"stage_accuracies": [0.5]}, "no accuracy for each of 5 stages"),
        ({"E": 0.9}, "no accuracy for each of 5 stages"),
        ({"A": None}, "lacks one of E, A, F"),
        ({"beta": float("nan")}, "lacks one of E, A, F"),
        ({"run_id": None}, "which run"),
        ({"cka/seen": "much"}, "its numbers cannot be read"),
        ({"live_batches": [1.0]}, "its numbers cannot be read"),
    ],
)
def test_a_row_that_is_not_what_it_says_is_refused_and_the_others_arrive(
    exported: dict[str, Row], empty: Store, change: Row, why: str
) -> None:
    (cell_id, row), other = list(exported.items())[:2]
    bad = {k: v for k, v in {**row, **change}.items() if v is not None}
    done = brought({cell_id: bad, other[0]: other[1]}, empty)
    assert done.copied == 1
    assert why in done.refused[cell_id]
    assert [r.data.tags["cell_id"] for r in empty.tagged_runs(kind="cell")] == [other[0]]


def test_settings_of_an_older_version_are_no_cell_of_this_one(exported: dict[str, Row]) -> None:
    row = dict(next(iter(exported.values())))
    del row["method"]
    with pytest.raises(SpecError, match="not a cell of this version"):
        spec_of(row)


def test_a_newcomer_goes_on_where_an_export_ends(
    exported: dict[str, Row], empty: Store, sweep: Sweep, tmp_path: Path
) -> None:
    brought(exported, empty)
    export_cells(sweep, empty, tmp_path)
    (tmp_path / "brought.yaml").write_text(SWEEP)
    told = oclgrid("store", "copy", CELLS, "mine", folder=tmp_path)
    assert "4 runs copied and compared, 0 were there" in told.stdout
    assert "4 cells: 4 finished" in oclgrid("plan", *MINE, folder=tmp_path).stdout
    table = oclgrid("run", *MINE, folder=tmp_path)
    assert "4 finished" in table.stderr
    assert "50.0 ± 0.0" in table.stdout
    runs = Folder(tmp_path / "mine").cells(sweep.cells).values()
    assert all(PARENT in run.tags for run in runs)
    assert len({run.tags[PARENT] for run in runs}) == 2


MINE = ("brought.yaml", "--store", "mine")


def oclgrid(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "oclgrid.platform.cli", *arguments]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=True)
