"""What the platform costs: a sweep's wall time against bare training of the same cells."""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.measure import Entry
from oclgrid.search_spaces.sweep import read_sweep

SWEEP = "quickstart"
SLOTS = 2

BARE = """
import sys, torch
from oclgrid.search_spaces.sweep import read_sweep
from oclgrid.trainables.datasets import data_root
from oclgrid.trainables.loop import Cell
torch.set_num_threads(1)
cell = Cell(read_sweep(sys.argv[1]).cells[int(sys.argv[2])], data_root())
while not cell.is_finished:
    cell.run_stage()
print(sum(r.train_seconds + r.inference_seconds for r in cell.records))
"""


def measure() -> list[Entry]:
    """Return slots x sweep time / sum of bare times; imports and start-up count as overhead."""
    bare = _bare_seconds()
    with tempfile.TemporaryDirectory() as store:
        started = time.perf_counter()
        command = [sys.executable, "-m", "oclgrid.platform.cli", "run", SWEEP]
        subprocess.run([*command, "--store", store, "--slots", str(SLOTS)], check=True)
        wall = time.perf_counter() - started
    name = f"{SWEEP} sweep, wall time x {SLOTS} slots"
    return [Entry(name, SLOTS * wall / sum(bare), "sum of bare training times", 0.0)]


def _bare_seconds() -> list[float]:
    """Return the training and inference time of each cell, two processes at a time."""

    def one(index: int) -> float:
        command = [sys.executable, "-c", BARE, SWEEP, str(index)]
        return float(subprocess.check_output(command, text=True))

    with ThreadPoolExecutor(SLOTS) as pool:
        return list(pool.map(one, range(len(read_sweep(SWEEP).cells))))
