"""Kill what runs a sweep, submit it again: the table is that of an undisturbed sweep."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

pytestmark = pytest.mark.slow

Start = Callable[[Path, str], Any]

SWEEP = """
sweep: faults
cells:
  dataset: digits
  memory: 50
  orders: 2
  method: [er, sdaf]
  stream_fraction: 0.15
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.yaml").write_text(SWEEP)
    return folder


def table(folder: Path, store: str) -> str:
    command = [sys.executable, "-m", "oclgrid.platform.cli", "table", "faults.yaml"]
    command += ["--store", store, "--format", "csv", "--no-seconds"]
    return subprocess.check_output(command, cwd=folder, text=True)


@pytest.fixture(scope="module")
def undisturbed(folder: Path, start: Start) -> str:
    command = start(folder, "undisturbed")
    assert command.wait() == 0, command.said()
    command.assert_nothing_left()
    return table(folder, "undisturbed")


def assert_each_cell_has_one_whole_run(folder: Path, store: str) -> None:
    client = MlflowClient(f"sqlite:///{folder / store / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("oclgrid")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {r.info.status for r in runs} == {"FINISHED"}
    cells = [r for r in runs if r.data.tags["kind"] == "cell"]
    assert len(cells) == len({r.data.tags["cell_id"] for r in cells}) == 4
    for run in cells:
        for name in ("E", "A", "beta", "stage", "train_seconds", "trained_images"):
            steps = [m.step for m in client.get_metric_history(run.info.run_id, name)]
            assert steps == [1, 2, 3, 4, 5], (name, steps)
        assert [m.step for m in client.get_metric_history(run.info.run_id, "F")] == [2, 3, 4, 5]


def test_an_undisturbed_sweep_leaves_whole_runs_and_no_process(
    folder: Path, undisturbed: str
) -> None:
    assert undisturbed.count("\n") == 3
    assert_each_cell_has_one_whole_run(folder, "undisturbed")


def test_a_sweep_whose_driver_is_killed_ends_like_an_undisturbed_one(
    folder: Path, undisturbed: str, start: Start
) -> None:
    first = start(folder, "driver")
    first.until_said("stage 2 of 5")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = start(folder, "driver")
    assert second.wait() == 0, second.said()
    first.assert_nothing_left()
    second.assert_nothing_left()
    assert "resumable" in second.said()
    assert table(folder, "driver") == undisturbed
    assert_each_cell_has_one_whole_run(folder, "driver")


def test_a_sweep_whose_worker_is_killed_ends_like_an_undisturbed_one(
    folder: Path, undisturbed: str, start: Start
) -> None:
    command = start(folder, "worker")
    command.until_said("stage 2 of 5")
    workers = [pid for pid, line in command.alive().items() if "Trainable.train" in line]
    assert workers
    os.kill(workers[0], signal.SIGKILL)
    assert command.wait() == 0, command.said()
    assert "lost its worker" in command.said()
    command.assert_nothing_left()
    assert table(folder, "worker") == undisturbed
    assert_each_cell_has_one_whole_run(folder, "worker")


def test_an_interrupted_sweep_says_how_to_go_on_and_does(
    folder: Path, undisturbed: str, start: Start
) -> None:
    first = start(folder, "interrupted")
    first.until_said("stage 2 of 5")
    os.kill(first.pid, signal.SIGINT)
    assert first.wait() == 130, first.said()
    assert "go on with `oclgrid run faults.yaml`" in first.said()
    first.assert_nothing_left()
    client = MlflowClient(f"sqlite:///{folder / 'interrupted' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("oclgrid")
    assert experiment is not None
    statuses = {r.info.status for r in client.search_runs([experiment.experiment_id])}
    assert "RUNNING" not in statuses
    second = start(folder, "interrupted")
    assert second.wait() == 0, second.said()
    assert table(folder, "interrupted") == undisturbed
    assert_each_cell_has_one_whole_run(folder, "interrupted")
