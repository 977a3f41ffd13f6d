"""A cell whose program fails is named, kept apart, and tried again when asked to."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

pytestmark = pytest.mark.slow

SWEEP = """
sweep: failures
cells:
  dataset: digits
  memory: 50
  orders: 1
  method: [er, sdaf]
  stream_fraction: 0.08
overrides:
  er: {learning_rate: 100}
"""


def test_a_diverging_cell_fails_by_name_and_the_others_finish(
    tmp_path: Path, start: Callable[[Path, str], Any]
) -> None:
    (tmp_path / "faults.yaml").write_text(SWEEP)
    command = start(tmp_path, "store")
    assert command.wait() == 1, command.said()
    said = command.said()
    assert re.search(
        r"er \(learning_rate 100\) digits M=50 order 0 failed: DivergedError: .* at training step "
        r"\d+ of stage \d",
        said,
    )
    assert "lower learning_rate" in said
    assert "go on" not in said
    assert "1 cells failed" in said
    command.assert_nothing_left()
    client = MlflowClient(f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("oclgrid")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.kind = 'cell'")
    assert {r.data.tags["method"]: r.info.status for r in runs} == {
        "er": "FAILED",
        "sdaf": "FINISHED",
    }
