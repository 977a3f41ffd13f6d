"""What must be so after any number of kills, and how much of it is not."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from mlflow import MlflowClient
from mlflow.entities import Run

from chaos.site import marked, until

CELLS, STAGES = 4, 5
METRICS = ("E", "A", "beta", "stage", "train_seconds", "trained_images")


class Damage(NamedTuple):
    """What a round did to the results; all zero and empty if nothing."""

    lost: int = 0
    """Steps, runs or files that are missing."""
    doubled: int = 0
    """Steps or runs that are there more than once."""
    other: tuple[str, ...] = ()
    """What else is not as it should be."""


def table(sweep: Path, store: Path) -> str:
    """Return the table as CSV, without what a clock says."""
    command = [sys.executable, "-m", "oclgrid.platform.cli", "table", str(sweep)]
    command += ["--store", str(store), "--format", "csv", "--no-seconds"]
    return subprocess.check_output(command, text=True)


def damage(store: Path) -> Damage:
    """Count what is missing from, doubled in or unfinished in a store."""
    client = MlflowClient(f"sqlite:///{store / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("oclgrid")
    runs: list[Run] = client.search_runs([experiment.experiment_id]) if experiment else []
    states = Counter(f"{r.data.tags['kind']} {r.info.status}" for r in runs)
    other = [f"{n} x {state}" for state, n in states.items() if not state.endswith("FINISHED")]
    cells = [r for r in runs if r.data.tags["kind"] == "cell"]
    known = {r.data.tags["cell_id"] for r in cells}
    lost, doubled = max(0, CELLS - len(known)), len(cells) - len(known)
    for run in cells:
        for name in METRICS:
            steps = Counter(m.step for m in client.get_metric_history(run.info.run_id, name))
            lost += len(set(range(1, STAGES + 1)) - set(steps))
            doubled += steps.total() - len(steps)
        names = {f.path.split("/")[0] for f in client.list_artifacts(run.info.run_id)}
        lost += len({"model", "accuracy_matrix.csv", "confusion_matrix.csv"} - names)
    return Damage(lost, doubled, tuple(other))


def wait_for_no_orphans() -> None:
    """Return once no process of an ended command is left on the cluster."""

    def is_clean() -> bool:
        kept = ("ray::IDLE", "ray-dashboard", "ray-runtime")
        lines = [line for line in marked().values() if line.startswith("ray::")]
        return not [line for line in lines if not line.startswith(kept)]

    until(is_clean, "the end of all workers")
