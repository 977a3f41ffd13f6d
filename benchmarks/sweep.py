"""What the platform costs: a sweep on two slots against bare processes that train its cells."""

import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Entry
from oclgrid.platform.server import sqlite_uri
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import Sweep, read_sweep

SLOTS = 2
TEXT = """sweep: bench
cells: {dataset: digits, memory: 200, orders: 8, method: sdaf}
overrides: {sdaf: {updates_per_batch: 4}}
"""
BARE = """
import sys, torch
from oclgrid.search_spaces.sweep import read_sweep
from oclgrid.trainables.datasets import data_root
from oclgrid.trainables.loop import Cell
torch.set_num_threads(1)
cell = Cell(read_sweep(sys.argv[1]).cells[int(sys.argv[2])], data_root())
while not cell.is_finished:
    cell.run_stage()
    cell.checkpoint()
print(sum(r.train_seconds + r.inference_seconds for r in cell.records))
"""
OVERHEAD_SECONDS, START_SECONDS = 2.0, 5.0
"""What a cell may cost beyond its training, and what may pass between two cells of a slot."""


class Span(NamedTuple):
    """When a cell was trained, in seconds, and how long it trained and tested meanwhile."""

    begun: float
    ended: float
    trained: float


def measure() -> list[Entry]:
    """Return the efficiency of the sweep, what it adds to a cell, and the start of a trial."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench.yaml").write_text(TEXT, encoding="utf-8")
        sweep = read_sweep(str(folder / "bench.yaml"))
        half = len(sweep.cells) // 2
        bare = _bare(range(half), folder)  # half before and half after: machines have moods
        command = [sys.executable, "-m", "oclgrid.platform.cli", "run", "bench.yaml"]
        started = time.time()
        subprocess.run([*command, "--slots", str(SLOTS)], check=True, cwd=folder)
        wall = time.time() - started
        spans = _spans(sweep, folder)
        bare += _bare(range(half, len(sweep.cells)), folder)
    first = min(s.begun for s in spans)
    trained = sum(s.trained for s in spans)
    pauses = _pauses(spans)
    held = sum(s.ended - s.begun for s in spans) + sum(pauses)
    overhead = (held - trained) / len(spans)
    return [
        Entry(
            f"efficiency of a sweep of {len(spans)} cells on {SLOTS} slots",
            bare / held,
            "bare processes",
            0.0,
            {
                "s of training a cell": round(trained / len(spans), 1),
                "bare": round(bare / len(spans), 1),
                "s of the whole command": round(wall, 1),
            },
            is_gain=True,
        ),
        Entry(
            "a cell beyond its training",
            overhead / OVERHEAD_SECONDS,
            f"{OVERHEAD_SECONDS:g} s",
            0.0,
            {"s": round(overhead, 2), "before the first cell trains, s": round(first - started, 1)},
        ),
        Entry(
            "from the end of a trial to the start of the next",
            statistics.median(pauses) / START_SECONDS,
            f"{START_SECONDS:g} s",
            (max(pauses) - min(pauses)) / START_SECONDS,
            {"s": round(statistics.median(pauses), 2)},
        ),
    ]


def _spans(sweep: Sweep, folder: Path) -> list[Span]:
    """Return when each cell was trained, by what its run says of its stages."""
    store = Store(sqlite_uri(folder / "oclgrid-store"))
    spans = []
    for run in store.cells(sweep.cells).values():
        train, test = (
            sorted(store.client.get_metric_history(run.run_id, name), key=lambda m: m.step)
            for name in ("train_seconds", "inference_seconds")
        )
        begun = train[0].timestamp / 1000 - train[0].value - test[0].value
        spans.append(Span(begun, train[-1].timestamp / 1000, train[-1].value + test[-1].value))
    return spans


def _pauses(spans: list[Span]) -> list[float]:
    """Return how long each slot was without a cell, between two of them."""
    pauses, ends = [], [s.ended for s in spans]
    for span in sorted(spans)[SLOTS:]:
        last = max(e for e in ends if e <= span.begun)
        ends.remove(last)
        pauses.append(span.begun - last)
    return pauses


def _bare(cells: range, folder: Path) -> float:
    """Return the seconds of these cells, each in a process, as many at a time as slots."""

    def one(index: int) -> float:
        command = [sys.executable, "-c", BARE, "bench.yaml", str(index)]
        return float(subprocess.check_output(command, text=True, cwd=folder))

    with ThreadPoolExecutor(SLOTS) as pool:
        return sum(pool.map(one, cells))
