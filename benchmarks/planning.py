"""What a full store costs: plan, table and run list of one sweep among ten thousand cells."""

import tempfile
from pathlib import Path

from benchmarks.measure import Entry, seconds
from benchmarks.reading import REPEATS, fill, share
from benchmarks.reading import seconds as command_seconds
from oclgrid.platform.location import Location
from oclgrid.platform.plan import make_plan
from oclgrid.platform.server import EmbeddedServer
from oclgrid.search_spaces.sweep import read_sweep
from tests.postgresql import PostgreSql

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
    """Return each time as a share of what it may take, over SQLite and over PostgreSQL."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, SIZE)
        over_sqlite = _measure(folder, "SQLite", Location(folder / "store", None))
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name), Path(name) / "postgresql"
        folder.chmod(0o711)  # PostgreSQL may run as another user
        data.mkdir()
        with PostgreSql(data) as database:
            fill(folder, SIZE, database.uri)
            with EmbeddedServer(folder / "store", database=database.uri) as server:
                server.wait()
                return over_sqlite + _measure(folder, "PostgreSQL", Location(None, server.uri))


def _measure(folder: Path, kind: str, place: Location) -> list[Entry]:
    (folder / "one.yaml").write_text(SWEEP, encoding="utf-8")
    commands = [
        share(
            f"oclgrid {command} of 279 cells in a store of {SIZE}, {kind}",
            [command_seconds(command, "one.yaml", folder, place.resolved) for _ in range(REPEATS)],
            allowed,
        )
        for command, allowed in ALLOWED.items()
    ]
    return [*commands, _plan(folder, kind, place), _run_list(kind, place)]


def _plan(folder: Path, kind: str, place: Location) -> Entry:
    """Return the time of the plan alone, without starting Python."""
    sweep = read_sweep(str(folder / "one.yaml"))
    plan = make_plan(sweep, place)
    assert (len(plan.cells), len(plan.todo)) == (279, 93)
    times = [seconds(lambda: make_plan(sweep, place)) for _ in range(REPEATS)]
    return share(f"planning 279 cells against {SIZE} runs, {kind}", times, PLAN_SECONDS)


def _run_list(kind: str, place: Location) -> Entry:
    """Return the time of the page of runs that the MLflow UI opens with."""
    from mlflow import MlflowClient

    client = MlflowClient(place.reading_uri)

    def page() -> None:
        newest = ["attributes.start_time DESC"]
        assert len(client.search_runs(["1"], "", max_results=100, order_by=newest)) == 100

    times = [seconds(page) for _ in range(REPEATS)]
    return share(f"the run list of {SIZE} runs, {kind}", times, LIST_SECONDS)
