"""Every way to read results gives the same answers: by the server, by its files, by an export."""

from pathlib import Path

import pytest

from oclgrid.platform import reading
from oclgrid.platform.export import CELLS, Export, export_cells
from oclgrid.platform.location import Location
from oclgrid.platform.reading import Folder, open_source
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import Sweep, parse_sweep

pytestmark = pytest.mark.slow

GRID = {"dataset": "digits", "memory": [3, 4, 5, 6, 7], "orders": 2, "method": ["er", "sdaf"]}
AT = 1_700_000_000_000


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return parse_sweep({"sweep": "sources", "cells": GRID}, where="test")


@pytest.fixture(scope="module")
def filled(server_uri: str, sweep: Sweep) -> Store:
    """A store with finished, failed and missing cells, and one cell run twice."""
    store = Store(server_uri)
    parent = store.find_or_create("sources", kind="sweep", sweep="sources")
    store.set_tags(parent, {"content": "some"})
    store.find_or_create("s", kind="search", search="s", study="s-1")
    for i, spec in enumerate([*sweep.cells[:-1], sweep.cells[0]]):
        run_id = store.create_cell(spec, parent=parent, tags={"commit": f"c{i}"})
        for stage in range(1, 6):
            numbers = {"E": 0.9 - stage / 100 - i / 1000, "A": 0.5, "F": 0.1, "beta": 1.0}
            numbers |= {"stage": stage, "train_seconds": 2.0 * stage, "inference_seconds": 1.0}
            store.log_numbers(run_id, numbers, step=stage, at=AT + stage)
        if i == 1:
            store.set_tags(run_id, {"error": "it <failed>"})
        if i == 2:
            for at, (batch, gamma) in enumerate([(4, 1.0), (9, 0.9), (4, 0.8123456)]):
                told = {"live/gamma": gamma, "live/loss": 2.0}
                store.log_numbers(run_id, told, step=batch, at=AT + at)
        store.set_status(run_id, "FAILED" if i == 1 else "FINISHED")
        store.client.log_text(run_id, f"text {i}", "some/file.txt")
    return store


@pytest.fixture(scope="module")
def folder(filled: Store, store_folder: Path) -> Folder:
    return Folder(store_folder)


def test_the_files_say_what_the_server_says(filled: Store, folder: Folder, sweep: Sweep) -> None:
    expected = filled.cells(sweep.cells)
    assert len(expected) == len(sweep.cells) - 1
    assert folder.cells(sweep.cells) == expected
    assert folder.cells(sweep.cells[:3]) == filled.cells(sweep.cells[:3])
    assert expected[sweep.cells[0].cell_id].tags["commit"] == "c0"
    assert expected[sweep.cells[1].cell_id].error == "it <failed>"


def test_stages_sweeps_and_files_agree(filled: Store, folder: Folder, sweep: Sweep) -> None:
    run_ids = [run.run_id for run in filled.cells(sweep.cells).values()]
    stages = folder.stage_accuracies(run_ids)
    assert stages == filled.stage_accuracies(run_ids)
    assert stages[run_ids[0]] == pytest.approx([0.89, 0.88, 0.87, 0.86, 0.85])
    assert folder.experiment_id == filled.experiment_id == filled.experiment
    assert folder.sweep("sources") == filled.sweep("sources")
    assert folder.sweep("another") is filled.sweep("another") is None
    found = folder.search("s-1")
    assert found == filled.search("s-1")
    assert found is not None
    assert found.tags["search"] == "s"
    assert folder.search("s") is filled.search("s") is None
    for source in (filled, folder):
        assert source.artifact(run_ids[0], "some/file.txt") == b"text 0"
        assert source.artifact(run_ids[0], "some/other.txt") is None


def test_what_was_told_during_training_is_the_last_word_on_each_batch(
    filled: Store, folder: Folder, sweep: Sweep
) -> None:
    run_ids = [run.run_id for run in filled.cells(sweep.cells).values()]
    live = folder.live(run_ids)
    assert live == filled.live(run_ids)
    assert live[run_ids[0]] == {}
    columns = {"live_batches": [4, 9], "live/gamma": [0.81235, 0.9], "live/loss": [2, 2]}
    assert columns in live.values()


def test_an_export_says_what_the_store_says_of_finished_cells(
    folder: Folder, sweep: Sweep, tmp_path: Path
) -> None:
    export_cells(sweep, folder, tmp_path)
    export = Export(tmp_path / CELLS)
    found = folder.cells(sweep.cells)
    finished = {c: run for c, run in found.items() if run.is_finished}
    exported = export.cells(sweep.cells)
    assert set(exported) == set(finished)
    for cell_id, run in exported.items():
        numbers = finished[cell_id].numbers.items()
        assert run.numbers == {k: v for k, v in numbers if k != "stage" and "live/" not in k}
        assert (run.run_id, run.stage) == (finished[cell_id].run_id, 5)
    run_ids = [run.run_id for run in exported.values()]
    assert export.stage_accuracies(run_ids) == folder.stage_accuracies(run_ids)
    assert export.live(run_ids) == folder.live(run_ids)


def test_a_database_of_another_version_is_left_to_mlflow(
    folder: Folder, sweep: Sweep, store_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Location(store_folder, None)
    assert isinstance(open_source(here), Folder)
    monkeypatch.setattr(reading, "KNOWN_SCHEMAS", {"an older one"})
    source = open_source(here)
    assert isinstance(source, Store)
    found = source.cells(sweep.cells)
    assert found == folder.cells(sweep.cells)
    run_id = found[sweep.cells[0].cell_id].run_id
    assert source.artifact(run_id, "some/file.txt") == b"text 0"


def test_the_database_of_the_installed_mlflow_is_one_we_can_read(
    server_uri: str, store_folder: Path
) -> None:
    assert server_uri
    Folder(store_folder)
