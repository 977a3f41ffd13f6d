"""What a full store costs: plan, table and run list of one sweep among ten thousand cells."""

import tempfile
from pathlib import Path

from benchmarks.measure import Entry, seconds
from benchmarks.reading import REPEATS, fill, share
from benchmarks.reading import seconds as command_seconds
from oclgrid.platform.location import Location
from oclgrid.platform.plan import make_plan
from oclgrid.platform.server import sqlite_uri
from oclgrid.search_spaces.sweep import read_sweep

SIZE = 10_020
"""Finished cells in the store."""
ALLOWED = {"plan": 5.0, "table": 5.0}
"""Seconds each command may take on two idle cores."""
PLAN_SECONDS, LIST_SECONDS = 1.0, 2.0
MEMORIES = range(100, 3_200, 100)
SWEEP = f"""sweep: one-of-many
cells:
  dataset: cifar100
  memory: [{", ".join(map(str, MEMORIES))}]
  orders: [8, 9, 10]
  method: [er, scr, sdaf]
"""
"""279 cells: class orders 8 and 9 are in the store, 10 is not."""


def measure() -> list[Entry]:
    """Return each time as a share of what it may take."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, SIZE)
        (folder / "one.yaml").write_text(SWEEP, encoding="utf-8")
        entries = [
            share(
                f"oclgrid {command} of 279 cells in a store of {SIZE}",
                [command_seconds(command, "one.yaml", folder) for _ in range(REPEATS)],
                allowed,
            )
            for command, allowed in ALLOWED.items()
        ]
        return [*entries, _plan(folder), _run_list(folder)]


def _plan(folder: Path) -> Entry:
    """Return the time of the plan alone, without starting Python."""
    sweep = read_sweep(str(folder / "one.yaml"))
    place = Location(folder / "store", None)
    plan = make_plan(sweep, place)
    assert (len(plan.cells), len(plan.todo)) == (279, 93)
    times = [seconds(lambda: make_plan(sweep, place)) for _ in range(REPEATS)]
    return share(f"planning 279 cells against {SIZE} runs", times, PLAN_SECONDS)


def _run_list(folder: Path) -> Entry:
    """Return the time of the page of runs that the MLflow UI opens with."""
    from mlflow import MlflowClient

    client = MlflowClient(sqlite_uri(folder / "store"))

    def page() -> None:
        newest = ["attributes.start_time DESC"]
        assert len(client.search_runs(["1"], "", max_results=100, order_by=newest)) == 100

    times = [seconds(page) for _ in range(REPEATS)]
    return share(f"the run list of {SIZE} runs", times, LIST_SECONDS)
