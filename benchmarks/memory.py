"""What one more trial on a machine needs: memory that it does not share with the others."""

import subprocess
import sys
import time

from benchmarks.measure import Entry, megabytes

METHODS = ("sdaf", "scr", "er")
LOOKS, PAUSE_SECONDS = 20, 0.25
ALLOWED_MB = 1000.0


def measure() -> list[Entry]:
    """Return the memory of a second trial, as a share of what it may need."""
    return [_measured(name) for name in METHODS]


def _measured(name: str) -> Entry:
    children = []
    totals = []
    try:
        for _ in range(2):
            child = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.memory", name], stdout=subprocess.PIPE
            )
            children.append(child)
            assert child.stdout is not None
            child.stdout.readline()  # it has taken a few steps
            totals.append(max(_look(children) for _ in range(LOOKS)))
    finally:
        for child in children:
            child.kill()
            child.communicate()
    extra = totals[1] - totals[0]
    figures = {"MB": round(extra), "first trial, MB": round(totals[0])}
    return Entry(f"memory of one more {name} trial", extra / ALLOWED_MB, "1 GB", 0.0, figures)


def _look(children: list[subprocess.Popen[bytes]]) -> float:
    """Return the memory that all of them hold now in MB, each shared page counted once."""
    time.sleep(PAUSE_SECONDS)
    return sum(megabytes(f"{child.pid}/smaps_rollup", "Pss") for child in children)


def train(name: str) -> None:
    """Train for ever on images like CIFAR-10's, with everything loaded that a worker loads."""
    import torch

    import oclgrid.platform.cell_log  # noqa: F401
    from benchmarks.learners import LAST_STAGE, learner, take

    torch.set_num_threads(1)
    method = learner(name)
    incoming = next(method.stream.batches(LAST_STAGE))
    for step in range(10**9):
        take(method, incoming)
        if step == 3:
            print("ready", flush=True)


if __name__ == "__main__":
    train(sys.argv[1])
