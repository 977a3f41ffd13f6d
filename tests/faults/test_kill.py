"""Kill what runs a sweep, submit it again: the table is that of an undisturbed sweep."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from mlflow import MlflowClient

pytestmark = pytest.mark.slow

SWEEP = """
sweep: faults
cells:
  dataset: digits
  memory: 50
  orders: 2
  method: [er, sdaf]
  stream_fraction: 0.15
"""
DEADLINE_SECONDS = 300


class Command:
    """A running `oclgrid run`, with every process that comes from it."""

    def __init__(self, folder: Path, store: str) -> None:
        self.mark = f"OCLGRID_TEST_MARK={uuid.uuid4()}"
        key, value = self.mark.split("=")
        self._errors = folder / f"{store}-{value[:8]}.txt"
        command = [sys.executable, "-m", "oclgrid.platform.cli", "run", "faults.yaml"]
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [*command, "--store", store],
                cwd=folder,
                env={**os.environ, key: value},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> str:
        return self._errors.read_text()

    def until_said(self, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while text not in self.said():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def wait(self) -> int:
        return self._process.wait(timeout=DEADLINE_SECONDS)

    def alive(self) -> dict[int, str]:
        """Return the command line of every process that inherited our mark and still runs."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
                if self.mark.encode() in environment and state != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:  # it ended while we looked
                continue
        return found

    def assert_nothing_left(self) -> None:
        # After SIGKILL of the driver Ray's agents notice within a minute or so.
        deadline = time.monotonic() + 240
        while left := self.alive():
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.2)


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
def undisturbed(folder: Path) -> str:
    command = Command(folder, "undisturbed")
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
    folder: Path, undisturbed: str
) -> None:
    first = Command(folder, "driver")
    first.until_said("stage 2 of 5")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    first.assert_nothing_left()
    second = Command(folder, "driver")
    assert second.wait() == 0, second.said()
    assert "resumable" in second.said()
    assert table(folder, "driver") == undisturbed
    assert_each_cell_has_one_whole_run(folder, "driver")


def test_a_sweep_whose_worker_is_killed_ends_like_an_undisturbed_one(
    folder: Path, undisturbed: str
) -> None:
    command = Command(folder, "worker")
    command.until_said("stage 2 of 5")
    workers = [pid for pid, line in command.alive().items() if "Trainable.train" in line]
    assert workers
    os.kill(workers[0], signal.SIGKILL)
    assert command.wait() == 0, command.said()
    assert "lost its worker" in command.said()
    command.assert_nothing_left()
    assert table(folder, "worker") == undisturbed
    assert_each_cell_has_one_whole_run(folder, "worker")


def test_an_interrupted_sweep_says_how_to_go_on_and_does(folder: Path, undisturbed: str) -> None:
    first = Command(folder, "interrupted")
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
    second = Command(folder, "interrupted")
    assert second.wait() == 0, second.said()
    assert table(folder, "interrupted") == undisturbed
    assert_each_cell_has_one_whole_run(folder, "interrupted")
