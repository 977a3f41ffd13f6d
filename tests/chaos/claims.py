"""What must be so after any number of kills, and how much of it is not."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from mlflow import MlflowClient

from tests.chaos.site import ours, until

CELLS, STAGES = 4, 5
FIRST_STEP = {"E": 1, "A": 1, "F": 2, "beta": 1, "stage": 1, "train_seconds": 1}
"""By metric: nothing is forgotten before the second stage."""
FILES = {"model", "accuracy_matrix.csv", "confusion_matrix.csv"}
OF_RAY = re.compile(r"ray::(IDLE|\w+Agent)")


class Damage(NamedTuple):
    """What a round did to the results; all zero and empty if nothing."""

    lost: int = 0
    """Runs, parameters, steps or files that are missing."""
    doubled: int = 0
    """Runs or steps that are there more than once."""
    other: tuple[str, ...] = ()
    """What else is not as it should be."""

    def __add__(self, more: "Damage") -> "Damage":  # type: ignore[override]
        """Return the sum of both."""
        return Damage(self.lost + more.lost, self.doubled + more.doubled, self.other + more.other)


def table(sweep: Path, store: str) -> str:
    """Return the table as CSV, without what a clock says."""
    command = [sys.executable, "-m", "oclgrid.platform.cli", "table", str(sweep)]
    command += ["--store", store, "--format", "csv", "--no-seconds"]
    return subprocess.check_output(command, text=True)


def damage(uri: str) -> Damage:
    """Count what is missing from, doubled in or unfinished in a store."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("oclgrid")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    states = Counter(f"{r.data.tags['kind']} {r.info.status}" for r in runs)
    other = [f"{n} x {state}" for state, n in states.items() if not state.endswith("FINISHED")]
    cells = [r for r in runs if r.data.tags["kind"] == "cell"]
    known = {r.data.tags["cell_id"] for r in cells}
    lost, doubled = max(0, CELLS - len(known)), len(cells) - len(known)
    for run in cells:
        lost += "stream_fraction" not in run.data.params
        for name, first in FIRST_STEP.items():
            steps = Counter(m.step for m in client.get_metric_history(run.info.run_id, name))
            lost += len(set(range(first, STAGES + 1)) - set(steps))
            doubled += steps.total() - len(steps)
        lost += len(FILES - {f.path for f in client.list_artifacts(run.info.run_id)})
    return Damage(lost, doubled, tuple(other))


def wait_for_no_orphans() -> None:
    """Return once no process of an ended command is left on the cluster."""

    def is_clean() -> bool:
        lines = ours().values()
        return all(OF_RAY.match(line) for line in lines if line.startswith("ray::"))

    until(is_clean, "the end of all workers")
