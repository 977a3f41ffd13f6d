"""Kill and stop a search, start it again: as many trials as asked, none lost or doubled."""

import csv
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from oclgrid.platform.location import Location
from oclgrid.platform.reading import open_source
from oclgrid.platform.search_report import build_search_report
from oclgrid.platform.study import Study, open_storage
from oclgrid.search_spaces.search import read_search

pytestmark = pytest.mark.slow

TRIALS, ORDERS = 4, 2
SEARCH = f"""
search: faults
space: sdaf-lambda-tau
cell: {{dataset: digits, memory: 20, method: sdaf, orders: {ORDERS}, stream_fraction: 0.05}}
budget: {{trials: {TRIALS}}}
"""


def test_a_search_killed_and_stopped_ends_whole(
    tmp_path: Path, start: Callable[[Path, str, str], Any]
) -> None:
    (tmp_path / "faults.yaml").write_text(SEARCH)
    killed = start(tmp_path, "store", "tune")
    killed.until_said("trial 0 order 0 (lambda 1.5, tau_w 0.5): stage 2 of 5")
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    stopped = start(tmp_path, "store", "tune")
    stopped.until_said("trial 0 order 1 (lambda 1.5, tau_w 0.5): stage 2 of 5")
    os.killpg(stopped.pid, signal.SIGINT)
    assert stopped.wait() == 130, stopped.said()
    _, finishing, after = re.split(
        r"finishing (\d) stages?, Ctrl-C again to stop now", stopped.said()
    )
    assert after.count(" of 5, accuracy") == int(finishing), stopped.said()
    assert re.search(r"stopped with [12] trials under way", after), stopped.said()
    assert "go on with `oclgrid tune faults.yaml`" in after
    last = start(tmp_path, "store", "tune")
    assert last.wait() == 0, last.said()
    for command in (killed, stopped, last):
        command.assert_nothing_left()

    search = read_search(str(tmp_path / "faults.yaml"))
    rows = Study(search, open_storage(f"sqlite:///{tmp_path / 'store' / 'optuna.db'}")).rows()
    assert [r.number for r in rows] == list(range(TRIALS))
    assert {r.state for r in rows} <= {"finished", "pruned"}
    assert rows[0].point == search.space.reference
    assert rows[0].state == "finished"
    assert len({tuple(r.point.values()) for r in rows}) == TRIALS
    for row in rows:
        assert list(row.steps) == list(range(1, row.reached + 1))

    client = MlflowClient(f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("oclgrid")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert "RUNNING" not in {r.info.status for r in runs}
    cells = [r for r in runs if r.data.tags["kind"] == "cell"]
    ids = Counter(r.data.tags["cell_id"] for r in cells)
    assert set(ids) == {cell for row in rows for cell in row.cells}
    assert set(ids.values()) == {1}
    assert {r.data.tags["protocol"] for r in cells} == {"validation"}
    for run in cells:
        steps = [m.step for m in client.get_metric_history(run.info.run_id, "A")]
        assert steps == list(range(1, len(steps) + 1))

    (own,) = (r for r in runs if r.data.tags["kind"] == "search")
    source = open_source(Location(tmp_path / "store", None))
    content = source.artifact(own.info.run_id, "trials.csv")
    assert content is not None
    told = csv.DictReader(content.decode().splitlines())
    assert [t["state"] for t in told] == [r.state for r in rows]
    for picture in ("history.png", "slice.png", "intermediate_values.png"):
        assert source.artifact(own.info.run_id, picture)
    filed = source.artifact(own.info.run_id, "report.html")
    assert filed is not None
    assert filed.decode() == build_search_report(search, source)
