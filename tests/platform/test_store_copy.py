"""Stores move between SQLite and PostgreSQL and back, whole, whatever happens on the way."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oclgrid.platform.claims import Claimant, Driver
from oclgrid.platform.reading import Folder
from oclgrid.platform.results import COPIED_FROM
from oclgrid.platform.server import EmbeddedServer
from oclgrid.platform.store import Store
from oclgrid.platform.store_copy import COPYING, CopyError, copy_store
from oclgrid.search_spaces.sweep import Sweep, parse_sweep

pytestmark = pytest.mark.slow

AT = 1_700_000_000_000
SWEEP = """sweep: moved
cells: {dataset: digits, memory: [21, 22], orders: 2, method: [er, sdaf]}
"""


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    grid = {"dataset": "digits", "memory": [21, 22], "orders": 2, "method": ["er", "sdaf"]}
    return parse_sweep({"sweep": "moved", "cells": grid}, where="test")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, sweep: Sweep) -> Iterator[Store]:
    """A store with finished, failed, unfinished and missing cells, groups and a sweep."""
    folder = tmp_path_factory.mktemp("filled")
    with EmbeddedServer(folder) as server:
        server.wait()
        store = Store(server.uri, folder=folder)
        fill(store, sweep)
        yield store


@pytest.fixture(scope="module")
def other_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store of our own: others leave several runs of one cell in the one that all share."""
    with EmbeddedServer(tmp_path_factory.mktemp("other")) as server:
        server.wait()
        yield server.uri


def fill(store: Store, sweep: Sweep) -> None:
    top = store.find_or_create("moved", kind="sweep", sweep="moved")
    for i, spec in enumerate(sweep.cells[:-1]):
        ids = {"sweep": "moved", "group_id": spec.group_id}
        group = store.find_or_create("group", parent=top, kind="group", **ids)
        run_id = store.create_cell(spec, parent=group, tags={"commit": f"c{i}"})
        for stage in range(1, 6 if i > 1 else 3):
            numbers = {"E": 0.9 - stage / 100 - i / 1000, "A": 0.5, "stage": stage, "F": 1 / 3}
            numbers |= {"train_seconds": 2.0 * stage, "inference_seconds": 1.0, "beta": 0.1 + 0.2}
            store.log_numbers(run_id, numbers, step=stage, at=AT + stage)
            store.client.log_text(run_id, f"{i} {stage}" * 99, f"checkpoints/{stage}.txt")
        if i:
            store.set_status(run_id, "FAILED" if i == 1 else "FINISHED")
    store.set_status(top, "FINISHED")


def content(store: Store) -> dict[str, Any]:
    """Return all that matters of the runs of the sweep, under names that outlive a copy."""
    found = {}
    names = {run.info.run_id: named(run) for kind in KINDS for run in store.tagged_runs(kind=kind)}
    for kind in KINDS:
        for run in store.tagged_runs(kind=kind, **({} if kind == "cell" else {"sweep": "moved"})):
            tags = {k: v for k, v in run.data.tags.items() if k not in (COPIED_FROM, COPYING)}
            parent = names.get(tags.pop("mlflow.parentRunId", ""), "")
            history = {
                (m.key, m.step, m.value, m.timestamp)
                for key in run.data.metrics
                for m in store.client.get_metric_history(run.info.run_id, key)
            }
            files = {
                path: store.artifact(run.info.run_id, path)
                for path in (f"checkpoints/{stage}.txt" for stage in range(1, 6))
            }
            times = (run.info.start_time, run.info.end_time or run.info.start_time)
            status = "KILLED" if run.info.status == "RUNNING" else run.info.status
            assert named(run) not in found
            found[named(run)] = (tags, parent, run.data.params, history, files, times, status)
    return found


KINDS = ("sweep", "group", "cell")


def named(run: Any) -> str:
    tags = run.data.tags
    return " ".join([tags["kind"], tags.get("cell_id") or tags.get("group_id", "")])


def quiet(number: int, of: int, name: str) -> None:
    pass


class StoppedError(Exception):
    pass


class StopAt:
    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, number: int, of: int, name: str) -> None:
        if number == self._number:
            raise StoppedError


def copied(source: Store, target: Store, tell: Any = quiet) -> tuple[int, int]:
    with Driver(target, beat_seconds=1e9) as driver:
        done = copy_store(source, target, driver.claimant, tell)
    assert done.busy == {}
    return done.copied, done.present


def test_a_store_goes_to_postgresql_by_fits_and_starts_and_comes_back_the_same(
    filled: Store, postgresql_uri: str, other_uri: str
) -> None:
    origin, there, back = filled, Store(postgresql_uri), Store(other_uri)
    runs = 1 + 4 + 7
    for number in (3, 8):
        with pytest.raises(StoppedError):
            copied(origin, there, StopAt(number))
    assert copied(origin, there) == (runs - 7, 7)
    assert copied(origin, there) == (0, runs)
    expected = content(origin)
    assert len(expected) == runs
    assert {k: v for k, v in content(there).items() if k in expected} == expected
    assert copied(there, back)[0] >= runs
    assert {k: v for k, v in content(back).items() if k in expected} == expected


def test_a_copy_cut_short_within_a_run_is_made_whole(
    filled: Store, other_uri: str, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Store(other_uri)
    for run in (r for kind in KINDS for r in target.tagged_runs(kind=kind)):
        target.delete(run.info.run_id)

    def stop(*_: object, **__: object) -> None:
        raise StoppedError

    cell = sweep.cells[3].cell_id
    monkeypatch.setattr("oclgrid.platform.store_copy._Copy._compare", stop)
    with pytest.raises(StoppedError):
        copied(filled, target)
    monkeypatch.undo()
    assert all(COPYING in tags for tags in target.tagged(kind="sweep").values())
    copied(filled, target)
    assert content(target) == content(filled)
    assert target.cells(sweep.cells)[cell].is_finished
    assert not any(COPYING in t for kind in KINDS for t in target.tagged(kind=kind).values())


def test_a_finished_cell_replaces_an_unfinished_one_and_is_never_replaced(
    filled: Store, other_uri: str, sweep: Sweep
) -> None:
    target = Store(other_uri)
    done, failed = sweep.cells[2], sweep.cells[1]
    for spec in (done, failed):
        for run in target.tagged_runs(kind="cell", cell_id=spec.cell_id):
            target.delete(run.info.run_id)
    unfinished = target.create_cell(done, parent="", tags={})
    finished = target.create_cell(failed, parent="", tags={})
    target.set_status(finished, "FINISHED")
    copied(filled, target)
    found = target.cells([done, failed])
    assert found[failed.cell_id].run_id == finished
    assert found[done.cell_id].run_id != unfinished
    assert found[done.cell_id].is_finished


def test_cells_that_somebody_works_on_are_left_out_and_named(
    filled: Store, other_uri: str, sweep: Sweep
) -> None:
    target = Store(other_uri)
    busy = sweep.cells[0]
    with Driver(filled, beat_seconds=1e9) as other, Driver(target, beat_seconds=1e9) as driver:
        other.claimant.claim(filled, busy.cell_id)
        done = copy_store(filled, target, driver.claimant, quiet)
    assert list(done.busy) == [busy.title]


def test_a_copy_that_differs_is_not_called_one(
    filled: Store, other_uri: str, sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, spec = Store(other_uri), sweep.cells[2]
    for run in target.tagged_runs(kind="cell", cell_id=spec.cell_id):
        target.delete(run.info.run_id)
    monkeypatch.setattr(target.client, "log_artifacts", lambda *_: None)
    with pytest.raises(CopyError, match=f"files of {spec.title}.*copy again"):
        copy_store(filled, target, Claimant("none"), quiet)
    assert not target.cells([spec])[spec.cell_id].is_finished


def test_a_folder_is_backed_up_and_restored_by_the_command(
    filled: Store, sweep: Sweep, tmp_path: Path
) -> None:
    (tmp_path / "moved.yaml").write_text(SWEEP)

    def oclgrid(*arguments: str) -> str:
        command = [sys.executable, "-m", "oclgrid.platform.cli", *arguments]
        return subprocess.check_output(command, cwd=tmp_path, text=True, env=os.environ)

    assert "12 runs copied and compared, 0 were there" in oclgrid(
        "store", "copy", filled.uri, "backup"
    )
    assert "0 runs copied and compared, 12 were there" in oclgrid(
        "store", "copy", filled.uri, "backup"
    )
    table = ("table", "moved.yaml", "--format", "csv", "--store")
    before = oclgrid(*table, filled.uri)
    assert oclgrid(*table, "backup") == before
    shutil.copytree(tmp_path / "backup", tmp_path / "restored")
    assert oclgrid(*table, "restored") == before
    restored = Folder(tmp_path / "restored").cells(sweep.cells)
    assert restored.keys() == filled.cells(sweep.cells).keys()


def test_a_dump_of_postgresql_is_restored_with_the_same_runs(
    postgresql: Any, postgresql_uri: str, sweep: Sweep
) -> None:
    before = Store(postgresql_uri)
    parent = before.find_or_create("dumped", kind="sweep", sweep="dumped")
    before.create_cell(sweep.cells[-1], parent=parent, tags={})
    where = ["--host=127.0.0.1", f"--port={postgresql.port}", "--username=oclgrid"]
    postgresql.run("pg_dump", *where, "--format=custom", "--file=dump", "postgres")
    postgresql.run("createdb", *where, "restored")
    postgresql.run("pg_restore", *where, "--dbname=restored", "dump")
    restored = Store(postgresql.uri.removesuffix("postgres") + "restored")
    for kind in KINDS:
        assert restored.tagged(kind=kind) == before.tagged(kind=kind) != {}
    assert restored.cells(sweep.cells) == before.cells(sweep.cells)
