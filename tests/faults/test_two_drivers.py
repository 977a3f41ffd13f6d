"""Two commands run one sweep in one remote store: they share the cells and lose none."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from oclgrid.platform.claims import Driver
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import read_sweep

pytestmark = pytest.mark.slow

HOLDER = """
import sys, time
from oclgrid.platform.claims import Driver
from oclgrid.platform.store import Store
store = Store(sys.argv[1])
with Driver(store) as driver:
    driver.claimant.claim(store, sys.argv[2])
    print("held", flush=True)
    time.sleep(600)
"""
Start = Callable[[Path, str], Any]
NAME = "shared"
CELLS, STAGES = 6, 5
SWEEP = f"""
sweep: {NAME}
cells: {{dataset: digits, memory: 50, orders: 3, method: [er, sdaf], stream_fraction: 0.15}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "faults.yaml").write_text(SWEEP)
    return tmp_path


def clear(uri: str) -> None:
    """Take away what the other test left of these cells."""
    for run in runs(uri):
        MlflowClient(uri).delete_run(run.info.run_id)


def runs(uri: str) -> list[Any]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("oclgrid")
    if experiment is None:
        return []
    found = client.search_runs([experiment.experiment_id], "tags.memory = '50'")
    return [*found, *client.search_runs([experiment.experiment_id], f"tags.sweep = '{NAME}'")]


def assert_each_cell_has_one_whole_run(uri: str) -> None:
    client = MlflowClient(uri)
    found = {r.info.run_id: r for r in runs(uri)}.values()
    assert {r.info.status for r in found} == {"FINISHED"}
    cells = [r for r in found if r.data.tags["kind"] == "cell"]
    assert len(cells) == len({r.data.tags["cell_id"] for r in cells}) == CELLS
    for run in cells:
        steps = [m.step for m in client.get_metric_history(run.info.run_id, "E")]
        assert steps == [1, 2, 3, 4, 5]
    assert len([r for r in found if r.data.tags["kind"] == "sweep"]) == 1
    assert len([r for r in found if r.data.tags["kind"] == "group"]) == 2


def table(folder: Path, uri: str) -> str:
    command = [sys.executable, "-m", "oclgrid.platform.cli", "table", "faults.yaml"]
    command += ["--store", uri, "--format", "csv", "--no-seconds"]
    return subprocess.check_output(command, cwd=folder, text=True)


def test_two_commands_train_each_stage_once_and_both_see_the_end(
    folder: Path, server_uri: str, start: Start
) -> None:
    clear(server_uri)
    first = start(folder, server_uri)
    first.until_said("stage 1 of 5")
    both = [first, start(folder, server_uri)]
    for command in both:
        assert command.wait() == 0, command.said()
    told = [command.said().count(f" of {STAGES}, accuracy") for command in both]
    assert sum(told) == CELLS * STAGES, [command.said() for command in both]
    assert_each_cell_has_one_whole_run(server_uri)
    rows = list(csv.DictReader(table(folder, server_uri).splitlines()))
    assert [(row["n"], row["asked"]) for row in rows] == [("3", "3")] * 2
    for command in both:
        command.assert_nothing_left()


def test_a_command_does_the_rest_waits_and_takes_up_what_was_left(
    folder: Path, server_uri: str, start: Start
) -> None:
    clear(server_uri)
    sweep = read_sweep(str(folder / "faults.yaml"))
    with (
        Driver(Store(server_uri)) as other,
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, server_uri, sweep.cells[1].cell_id],
            stdout=subprocess.PIPE,
        ) as killed,
    ):
        other.claimant.claim(Store(server_uri), sweep.cells[0].cell_id)
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"held\n"
        command = start(folder, server_uri)
        command.until_said(f"waiting for {sweep.cells[0].title}: 0 of 5 stages are done by")
        assert command.said().count(f" of {STAGES}, accuracy") == (CELLS - 2) * STAGES
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        command.until_said(f"{sweep.cells[1].title}: stage 5")
        assert f"{sweep.cells[0].title}: stage" not in command.said()
    assert command.wait() == 0, command.said()
    assert command.said().count(f" of {STAGES}, accuracy") == CELLS * STAGES
    assert_each_cell_has_one_whole_run(server_uri)
    command.assert_nothing_left()
