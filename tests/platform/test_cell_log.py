"""The log of a cell in a real tracking server: nothing lost, nothing doubled, nothing foreign."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mlflow.pyfunc
import pytest
from mlflow.exceptions import MlflowException

from oclgrid.platform.cell_log import MlflowCellLog
from oclgrid.platform.model import ClassifierModel
from oclgrid.platform.provenance import provenance
from oclgrid.platform.reading import Folder
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables.cell import Assignment, CellTrainable
from oclgrid.trainables.datasets import data_root, dataset, load
from oclgrid.trainables.loop import Cell

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(one_thread: None) -> Cell:
    """A finished cell."""
    grid = {"dataset": "digits", "memory": 50, "orders": 1, "method": "sdaf"}
    (spec,) = parse_sweep(
        {"sweep": "log", "cells": {**grid, "stream_fraction": 0.08}}, where="test"
    ).cells
    cell = Cell(spec, data_root())
    while not cell.is_finished:
        cell.run_stage()
    return cell


@pytest.fixture
def log(server_uri: str, trained: Cell) -> MlflowCellLog:
    store = Store(server_uri)
    parent = store.find_or_create("log", kind="sweep", sweep="log")
    run_id = store.create_cell(trained.spec, parent=parent, tags=provenance())
    return MlflowCellLog(server_uri, run_id, trained.spec)


def settle(log: MlflowCellLog) -> None:
    assert log.undelivered(60) == ""


def steps(log: MlflowCellLog, name: str) -> list[int]:
    settle(log)
    client = Store(log.uri).client
    return [m.step for m in client.get_metric_history(log.run_id, name)]


def test_a_stage_logged_twice_counts_once(log: MlflowCellLog, trained: Cell) -> None:
    for _ in range(2):
        log.stage_done(trained.records[:1], b"a checkpoint")
        log.stage_done(trained.records[:2], b"another")
    assert steps(log, "E") == [1, 2]
    assert steps(log, "F") == [2]


def test_the_memory_a_cell_has_needed_is_found_by_dataset_and_method(
    log: MlflowCellLog, trained: Cell, store_folder: Path
) -> None:
    log.stage_done(trained.records, None)
    log.gpu_used(0.0701)
    log.gpu_used(0.0702)
    assert not log.undelivered(60)
    store = Store(log.uri)
    store.set_status(log.run_id, "FINISHED")
    for source in (store, Folder(store_folder)):
        assert max(t.gpu_peak for t in source.stage_times("digits", "sdaf")) == 0.0702


def test_metrics_lost_between_checkpoint_and_log_are_filed_on_resuming(
    log: MlflowCellLog, trained: Cell
) -> None:
    log._upload({"checkpoints/stage-5-" + "0" * 64 + ".pt": b"killed right after this"})
    log.stage_done(trained.records, None)
    assert steps(log, "A") == [1, 2, 3, 4, 5]


def test_a_stage_that_the_store_has_from_another_attempt_is_not_filed_again(
    log: MlflowCellLog, trained: Cell
) -> None:
    log.stage_done(trained.records[:2], None)
    late = [replace(r, finished_at_ms=r.finished_at_ms + 5000) for r in trained.records[:3]]
    log.stage_done(late, None)
    assert steps(log, "E") == [1, 2, 3]


def test_what_waits_for_a_store_that_is_away_is_filed_by_the_next_attempt(
    log: MlflowCellLog, trained: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    away = MlflowCellLog("http://127.0.0.1:9", log.run_id, trained.spec)
    away.stage_done(trained.records[:1], b"a checkpoint")
    away.finish(trained.records, trained.predictor())
    assert "2 results wait" in away.undelivered(0.1)
    assert log.filed().is_finished
    assert list(log.checkpoints()) == [b"a checkpoint"]
    assert steps(log, "E") == [1]


def test_checkpoints_come_newest_first_and_damaged_ones_not_at_all(
    log: MlflowCellLog, trained: Cell, store_folder: Path
) -> None:
    for count, content in enumerate((b"one", b"two", b"three"), start=1):
        log.stage_done(trained.records[:count], content)
    settle(log)
    assert list(log.checkpoints()) == [b"three", b"two", b"one"]
    (newest,) = store_folder.glob(f"artifacts/**/{log.run_id}/**/stage-3-*.pt")
    newest.write_bytes(b"thre")
    assert list(log.checkpoints()) == [b"two", b"one"]


def test_a_trial_goes_on_from_the_newest_checkpoint_it_can_use(
    log: MlflowCellLog, trained: Cell
) -> None:
    half = Cell(trained.spec, data_root())
    half.run_stage()
    half.run_stage()
    log.stage_done(half.records, half.checkpoint())
    log.stage_done(trained.records[:3], b"whole, but no checkpoint")
    settle(log)
    trial = CellTrainable.__new__(CellTrainable)
    trial._assignments, trial._data = {}, str(data_root())
    trial._todo = Assignment(trained.spec, log)
    trial._trial_info, trial._share = None, {}
    cell = trial._open()
    assert len(cell.records) == 2
    while not cell.is_finished:
        cell.run_stage()
    assert [r.confusion for r in cell.records] == [r.confusion for r in trained.records]


def test_a_finished_run_holds_what_people_look_for(log: MlflowCellLog, trained: Cell) -> None:
    log.begin()
    log.stage_done(trained.records, trained.checkpoint())
    log.finish(trained.records, trained.predictor())
    settle(log)
    run = Store(log.uri).client.get_run(log.run_id)
    assert run.info.status == "FINISHED"
    tags = run.data.tags
    assert tags["cell_id"] == trained.spec.cell_id
    assert {k: tags[k] for k in ("dataset", "memory", "order", "method")} == {
        "dataset": "digits",
        "memory": "50",
        "order": "0",
        "method": "sdaf",
    }
    assert tags["data_digest"] == dataset("digits").digest
    assert {"commit", "version.torch", "version.ray", "version.oclgrid"} <= set(tags)
    assert run.data.params["method.long.crop_min"] == "0.5"
    assert run.data.params["method.self_supervised_weight"] == "1.5"
    assert len(json.loads(run.data.params["class_sequence"])) == 10
    names = {f.path for f in Store(log.uri).client.list_artifacts(log.run_id)}
    matrices = {"accuracy_matrix.csv", "confusion_matrix.csv", "confusion_matrix.png"}
    assert names == {*matrices, "checkpoints", "model"}


def test_the_model_predicts_like_the_cell_in_process_and_by_command(
    log: MlflowCellLog, trained: Cell, tmp_path: Path
) -> None:
    log.finish(trained.records, trained.predictor())
    settle(log)
    images = load(dataset("digits"), data_root()).test.images[:40]
    expected = ClassifierModel(trained.predictor()).predict(images).tolist()
    mlflow.set_tracking_uri(log.uri)
    model = f"runs:/{log.run_id}/model"
    assert mlflow.pyfunc.load_model(model).predict(images).tolist() == expected
    question, answer = tmp_path / "images.json", tmp_path / "classes.json"
    question.write_text(json.dumps({"inputs": images.tolist()}))
    command = [sys.executable, "-m", "mlflow", "models", "predict", "--model-uri", model]
    command += ["--input-path", str(question), "--output-path", str(answer)]
    command += ["--content-type", "json", "--env-manager", "local"]
    subprocess.run(command, check=True, env={**os.environ, "MLFLOW_TRACKING_URI": log.uri})
    assert json.loads(answer.read_text())["predictions"] == expected


def test_a_run_whose_maker_died_before_describing_it_is_described(
    server_uri: str, trained: Cell
) -> None:
    store = Store(server_uri)
    run_id = store.create("cut short", {"kind": "cell", "cell_id": trained.spec.cell_id})
    MlflowCellLog(server_uri, run_id, trained.spec).filed()
    assert store.client.get_run(run_id).data.params["stream_fraction"] == "0.08"


def test_a_failed_run_holds_the_reason_and_the_traceback(log: MlflowCellLog) -> None:
    log.fail("DivergedError: the loss was nan", "Traceback ...")
    settle(log)
    run = Store(log.uri).client.get_run(log.run_id)
    assert run.info.status == "FAILED"
    assert run.data.tags["error"] == "DivergedError: the loss was nan"
    names = {f.path for f in Store(log.uri).client.list_artifacts(log.run_id)}
    assert "error.txt" in names


def test_a_run_that_is_gone_is_not_waited_for(server_uri: str, trained: Cell) -> None:
    log = MlflowCellLog(server_uri, "0" * 32, trained.spec)
    log.begin()
    with pytest.raises(MlflowException, match="not found"):  # a wait ends in TransientError
        log.undelivered(60)
