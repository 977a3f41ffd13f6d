"""A sweep trains a network once, however many ways it is classified."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

pytestmark = pytest.mark.slow

SWEEP = """
sweep: donors
cells: {dataset: digits, memory: 50, orders: 1, method: [sdaf-euclid, sdaf], stream_fraction: 0.08}
"""


def test_the_second_classifier_costs_no_training(tmp_path: Path) -> None:
    (tmp_path / "donors.yaml").write_text(SWEEP)
    command = [sys.executable, "-m", "oclgrid.platform.cli", "run", "donors.yaml"]
    text = subprocess.check_output([*command, "--format", "csv"], cwd=tmp_path, text=True)
    assert [row["method"] for row in csv.DictReader(text.splitlines())] == ["sdaf-euclid", "sdaf"]
    client = MlflowClient(f"sqlite:///{tmp_path / 'oclgrid-store' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("oclgrid")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.kind = 'cell'")
    seconds = {r.data.tags["method"]: r.data.metrics["train_seconds"] for r in runs}
    # Taken over to the last digit: measured once, in the cell that trained.
    assert seconds["sdaf"] == seconds["sdaf-euclid"]
