"""What looking at results costs: table and report over stores full of finished cells."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sqlalchemy import MetaData, create_engine

from benchmarks.measure import Entry
from oclgrid.platform.results import flatten
from oclgrid.platform.server import sqlite_uri
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import read_sweep
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


def seconds(command: str, sweep: str, folder: Path, store: str = "store") -> float:
    """Return the time of a command on a sweep in a folder, over the store there or elsewhere."""
    arguments = [command, sweep, "--store", store]
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "oclgrid.platform.cli", *arguments],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def fill(folder: Path, size: int, database: str | None = None) -> None:
    """Write a sweep of ``size`` cells and a store in which all of them have finished."""
    memories = ", ".join(str(100 * (i + 1)) for i in range(size // 30))
    text = SWEEP.format(memory=memories, orders=10)
    (folder / "full.yaml").write_text(text, encoding="utf-8")
    sweep = read_sweep(str(folder / "full.yaml"))
    assert len(sweep.cells) == size
    (folder / "store").mkdir()
    uri = database or sqlite_uri(folder / "store")
    assert Store(uri).experiment == "1"  # makes MLflow's own tables
    engine = create_engine(uri)
    tables = MetaData()
    tables.reflect(engine)
    with engine.begin() as connection:
        for i, spec in enumerate(sweep.cells):
            for name, rows in _rows(i, spec).items():
                connection.execute(tables.tables[name].insert(), rows)
    engine.dispose()


def _rows(i: int, spec: CellSpec) -> dict[str, list[dict[str, Any]]]:
    """Return one finished run, with the tags, params and metrics a real one has, by table."""
    own = {"run_uuid": f"{i:032x}"}
    run = {
        "name": spec.title,
        "source_type": "UNKNOWN",
        "user_id": "nobody",
        "status": "FINISHED",
        "start_time": AT + i,
        "end_time": AT + i,
        "lifecycle_stage": "active",
        "artifact_uri": f"mlflow-artifacts:/1/{i:032x}/artifacts",
        "experiment_id": 1,
    }
    points = [
        {**own, "key": k, "value": v, "timestamp": AT + s, "step": s, "is_nan": False}
        for s in range(1, STAGES + 1)
        for k, v in _at(s, i)
    ]
    return {
        "runs": [own | run],
        "tags": [{**own, "key": k, "value": v} for k, v in _tags(spec).items()],
        "params": [{**own, "key": k, "value": str(v)} for k, v in flatten(spec.resolved).items()],
        "metrics": points,
        "latest_metrics": [p for p in points if p["step"] == STAGES],
    }


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
