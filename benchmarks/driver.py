"""What a running sweep costs the machine that drives it: processor and memory per 100 cells."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks.measure import Entry, megabytes
from benchmarks.resting import Resting

FEW, MANY = 2, 42
"""Cells at once; the difference is what the cells cost, the rest is there anyway."""
SECONDS = 30.0
ALLOWED = {"processor": 0.5, "memory": 100.0}
"""Of one core, and MB, per 100 running cells."""
SWEEP = {
    "sweep": "resting",
    "cells": {"dataset": "digits", "memory": 50, "orders": MANY, "method": "er"},
}


def measure() -> list[Entry]:
    """Return what 100 running cells cost, as a share of what they may."""
    few, many = _figures(FEW), _figures(MANY)
    per_100 = {k: 100 * (many[k] - few[k]) / (MANY - FEW) for k in ALLOWED}
    against = {"processor": "half a core", "memory": "100 MB"}
    return [
        Entry(
            f"{name} of the command per 100 running cells",
            per_100[name] / ALLOWED[name],
            against[name],
            0.0,
            {f"with {FEW}": few[name], f"with {MANY}": many[name], "per 100": per_100[name]},
        )
        for name in ALLOWED
    ]


def _figures(cells: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.driver", str(cells)]
    said = subprocess.check_output(command, text=True)
    return dict(json.loads(said.splitlines()[-1]))  # Ray may print before


def drive(count: int) -> dict[str, float]:
    """Run so many resting cells at once; return share of a core and MB while all of them run."""
    from oclgrid.platform import launch
    from oclgrid.platform.display import Display
    from oclgrid.platform.stopping import Stop
    from oclgrid.search_spaces.sweep import parse_sweep

    launch.CellTrainable = Resting  # type: ignore[misc,assignment]
    cells = {c.cell_id: c for c in parse_sweep(SWEEP, where="benchmark").cells[:count]}
    figures: dict[str, float] = {}
    display, stop = Display(), Stop()
    stop.watch(lambda _: "measured" if figures else "")
    with launch.Cluster(None, cpus=count, stop=stop) as cluster:

        def watch() -> None:
            while len(cluster.progress()) < count:
                time.sleep(0.5)
            before, started = time.process_time(), time.monotonic()
            time.sleep(SECONDS)
            share = (time.process_time() - before) / (time.monotonic() - started)
            figures.update(processor=share, memory=megabytes("self/status", "VmRSS"))

        threading.Thread(target=watch, daemon=True).start()
        stages = dict.fromkeys(cells, 0)
        events = launch.Events(display.result, display.retry)
        with display.watching(cells, stages, slots=count, poll=cluster.progress):
            cluster.run(dict.fromkeys(cells), asked={"CPU": 1.0}, data=Path(), events=events)
    return figures


if __name__ == "__main__":
    from oclgrid.platform.environment import prepare

    prepare()
    print(json.dumps(drive(int(sys.argv[1]))))
