"""Kill what runs a sweep, submit it again: the table is that of an undisturbed sweep."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from oclgrid.platform.server import EmbeddedServer

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
    assert "Traceback" not in command.said()
    command.assert_nothing_left()
    assert table(folder, "worker") == undisturbed
    assert_each_cell_has_one_whole_run(folder, "worker")


def stages_filed(folder: Path, store: str) -> dict[str, int]:
    """Return the finished stages of each cell; nothing may be RUNNING."""
    client = MlflowClient(f"sqlite:///{folder / store / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("oclgrid")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert "RUNNING" not in {r.info.status for r in runs}
    cells = [r for r in runs if r.data.tags["kind"] == "cell"]
    return {r.info.run_name: int(r.data.metrics.get("stage", 0)) for r in cells}


def stages_told(said: str) -> int:
    return said.count(" of 5, accuracy")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_sweep_asked_to_stop_finishes_its_stages_and_goes_on_later(
    folder: Path, undisturbed: str, start: Start, number: int
) -> None:
    store = f"asked-{number}"
    first = start(folder, store)
    first.until_said("stage 2 of 5")
    if number == signal.SIGINT:
        os.killpg(first.pid, number)  # as a terminal does: to all processes of the command
    else:
        os.kill(first.pid, number)  # as `kill` and schedulers do
    assert first.wait() == 130, first.said()
    before, finishing, after = re.split(
        r"finishing (\d) stages?, Ctrl-C again to stop now", first.said()
    )
    assert stages_told(after) == int(finishing), first.said()
    assert "go on with `oclgrid run faults.yaml`" in after
    first.assert_nothing_left()
    filed = stages_filed(folder, store)
    assert sum(filed.values()) == stages_told(before + after)
    second = start(folder, store)
    assert second.wait() == 0, second.said()
    assert stages_told(second.said()) == 20 - sum(filed.values())
    assert table(folder, store) == undisturbed
    assert_each_cell_has_one_whole_run(folder, store)


def test_a_sweep_asked_twice_stops_at_once_and_loses_only_what_was_under_way(
    folder: Path, undisturbed: str, start: Start
) -> None:
    first = start(folder, "twice")
    first.until_said("stage 2 of 5")
    os.killpg(first.pid, signal.SIGINT)
    first.until_said("finishing ")
    os.killpg(first.pid, signal.SIGINT)
    assert first.wait() == 130, first.said()
    _, _, after = first.said().partition("stopping now; finished stages are kept")
    assert stages_told(after) == 0, first.said()
    assert "go on with `oclgrid run faults.yaml`" in after
    first.assert_nothing_left()
    stages_filed(folder, "twice")
    second = start(folder, "twice")
    assert second.wait() == 0, second.said()
    assert table(folder, "twice") == undisturbed
    assert_each_cell_has_one_whole_run(folder, "twice")


def test_an_outage_of_the_store_delays_delivery_and_never_training(
    folder: Path, undisturbed: str, start: Start
) -> None:
    with EmbeddedServer(folder / "outage") as server:
        server.wait()
        first = start(folder, server.uri)
        first.until_said("stage 1 of 5")
    # The server is away now. Worse: the command and all its workers die before it comes back.
    first.until_said("stage 4 of 5")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.assert_nothing_left()
    assert list((folder / "outbox").iterdir())
    with EmbeddedServer(folder / "outage", port=server.port) as server:
        server.wait()
        second = start(folder, server.uri)
        assert second.wait() == 0, second.said()
    second.assert_nothing_left()
    assert stages_told(first.said()) + stages_told(second.said()) <= 20
    assert list((folder / "outbox").iterdir()) == []
    assert table(folder, "outage") == undisturbed
    assert_each_cell_has_one_whole_run(folder, "outage")
