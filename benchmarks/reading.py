"""What looking at results costs: table and report over stores full of finished cells."""

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Entry
from oclgrid.platform.results import flatten
from oclgrid.platform.server import sqlite_uri
from oclgrid.search_spaces.sweep import Sweep, read_sweep
from oclgrid.trainables.spec import CellSpec

SIZES = {300: 3.0, 3000: 15.0}
"""Finished cells, and the seconds each command may take on two idle cores."""
COMMANDS = ("table", "report")
REPEATS = 3
STAGES = 10
AT = 1_700_000_000_000
SWEEP = """sweep: full
cells: {{dataset: cifar100, memory: [{memory}], orders: {orders}, method: [er, scr, sdaf]}}
"""


def measure() -> list[Entry]:
    """Return the time of each command over each store as a share of what it may take."""
    entries = []
    for size, allowed in SIZES.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            fill(folder, size)
            for command in COMMANDS:
                times = [seconds(command, "full.yaml", folder) for _ in range(REPEATS)]
                entries.append(share(f"{command} of {size} cells", times, allowed))
    return entries


def share(name: str, times: list[float], allowed: float) -> Entry:
    """Return the median time as a share of the seconds allowed, and print it."""
    middle, spread = statistics.median(times), max(times) - min(times)
    print(f"{name}: {middle:.2f} s")
    return Entry(name, middle / allowed, f"{allowed:g} s", spread / allowed, {"seconds": middle})


def seconds(command: str, sweep: str, folder: Path) -> float:
    """Return the time of a command on a sweep, over the store in a folder."""
    arguments = [command, sweep, "--store", "store"]
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "oclgrid.platform.cli", *arguments],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def fill(folder: Path, size: int) -> None:
    """Write a sweep of ``size`` cells and a store in which all of them have finished."""
    memories = ", ".join(str(100 * (i + 1)) for i in range(size // 30))
    text = SWEEP.format(memory=memories, orders=10)
    (folder / "full.yaml").write_text(text, encoding="utf-8")
    sweep = read_sweep(str(folder / "full.yaml"))
    assert len(sweep.cells) == size
    store = folder / "store"
    store.mkdir()
    base = _empty(store)
    with base:
        _insert(base, sweep)
    base.close()


def _empty(store: Path) -> sqlite3.Connection:
    """Return MLflow's own database, new, with our experiment in it."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from oclgrid.platform.store import Store

    assert Store(sqlite_uri(store)).experiment == "1"
    return sqlite3.connect(store / "mlflow.db")


def _insert(base: sqlite3.Connection, sweep: Sweep) -> None:
    """Add one finished run per cell, with the tags, params and metrics a real one has."""
    for i, spec in enumerate(sweep.cells):
        run_id = f"{i:032x}"
        base.execute(
            "INSERT INTO runs (run_uuid, name, source_type, user_id, status, start_time, "
            "end_time, lifecycle_stage, artifact_uri, experiment_id) "
            "VALUES (?, ?, 'UNKNOWN', 'nobody', 'FINISHED', ?, ?, 'active', ?, 1)",
            (run_id, spec.title, AT + i, AT + i, f"mlflow-artifacts:/1/{run_id}/artifacts"),
        )
        for table, values in (("tags", _tags(spec)), ("params", flatten(spec.resolved))):
            rows = [(key, str(value), run_id) for key, value in values.items()]
            base.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
        points = [(k, v, AT + s, run_id, s) for s in range(1, STAGES + 1) for k, v in _at(s, i)]
        base.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, 0)", points)
        last = [(k, v, t, s, r) for k, v, t, r, s in points if s == STAGES]
        base.executemany("INSERT INTO latest_metrics VALUES (?, ?, ?, ?, 0, ?)", last)


def _tags(spec: CellSpec) -> dict[str, str]:
    own = {"kind": "cell", "cell_id": spec.cell_id, "group_id": spec.group_id}
    own |= {"dataset": spec.dataset, "method": spec.method.name, "protocol": spec.protocol}
    return own | {f"version.{name}": "1" for name in ("oclgrid", "torch", "numpy", "ray", "mlflow")}


def _at(stage: int, cell: int) -> list[tuple[str, float]]:
    """Return made-up numbers of a stage, different for each cell."""
    end = 0.9 - 0.05 * stage + cell % 97 / 1000
    names = ("E", "A", "F", "beta", "stage", "train_seconds", "inference_seconds")
    values = (end, end + 0.1, 0.2, 0.9, stage, 60.0 * stage, 2.0 * stage)
    live = [(f"live/{name}", 1.0) for name in ("loss", "images_per_second")]
    return [*zip(names, map(float, values), strict=True), *live]
