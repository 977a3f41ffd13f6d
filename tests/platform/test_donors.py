"""A sweep trains a network once, however many ways it is classified."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from oclgrid.platform.run import _waves
from oclgrid.search_spaces.sweep import parse_sweep

SWEEP = """
sweep: donors
cells: {dataset: digits, memory: 50, orders: 1, method: [sdaf-euclid, sdaf], stream_fraction: 0.08}
"""


def test_cells_wait_for_a_training_that_the_store_does_not_have() -> None:
    euclid, other = parse_sweep(yaml.safe_load(SWEEP), where="donors.yaml").cells
    assert euclid.training_id == other.training_id
    assert _waves([euclid, other], ()) == ([euclid], [other])
    assert _waves([euclid, other], {euclid.training_id}) == ([euclid, other], [])


def test_cells_of_one_training_stand_together() -> None:
    text = SWEEP.replace("orders: 1", "orders: 2").replace(
        "sdaf-euclid, sdaf", "sdaf, er, sdaf-euclid"
    )
    cells = parse_sweep(yaml.safe_load(text), where="donors.yaml").cells
    sdaf, er, euclid = cells[:2], cells[2:4], cells[4:]
    assert _waves(cells, ()) == ([*sdaf, *er], [*euclid])
    trained = {spec.training_id for spec in sdaf}
    assert _waves(cells, trained) == ([sdaf[0], euclid[0], sdaf[1], euclid[1], *er], [])


@pytest.mark.slow
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
