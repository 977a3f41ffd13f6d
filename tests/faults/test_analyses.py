"""Kill a sweep while it analyses, submit it again: every analysis is there, and only once."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

pytestmark = pytest.mark.slow

SWEEP = """
sweep: faults
cells: {dataset: digits, memory: 50, orders: 1, method: er, stream_fraction: 0.08}
analyses: [cka, tsne, scree, centres]
"""


def only_cell(folder: Path) -> tuple[MlflowClient, Run]:
    client = MlflowClient(f"sqlite:///{folder / 'store' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("oclgrid")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.kind = 'cell'")
    return client, run


def test_a_sweep_killed_while_it_analyses_goes_on_with_what_is_missing(
    tmp_path: Path, start: Callable[[Path, str], Any]
) -> None:
    (tmp_path / "faults.yaml").write_text(SWEEP)
    first = start(tmp_path, "store")
    first.until_said("analysed cka")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    _, before = only_cell(tmp_path)
    assert before.info.status == "FINISHED"
    second = start(tmp_path, "store")
    assert second.wait() == 0, second.said()
    first.assert_nothing_left()
    second.assert_nothing_left()
    assert "analysed cka" not in second.said()
    assert "stage 1 of 5" not in second.said()
    client, after = only_cell(tmp_path)
    assert after.info == before.info
    found = ("cka/seen", "cka/unseen", "tsne/kl_divergence", "scree/directions")
    for name in (*found, "centres/test_by_stream_euclid"):
        assert len(client.get_metric_history(after.info.run_id, name)) == 1, name
    assert [m.step for m in client.get_metric_history(after.info.run_id, "E")] == [1, 2, 3, 4, 5]
