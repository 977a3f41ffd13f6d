"""How cost grows with image size, classes, memory size and cells, each from a small start."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Entry, megabytes, seconds
from benchmarks.reading import fill
from benchmarks.reading import seconds as command_seconds

SIZES: dict[str, tuple[int, ...]] = {
    "side": (16, 32, 48, 64, 84),
    "classes": (10, 20, 50, 100),
    "memory": (200, 500, 1000, 2000, 5000),
}
"""One is changed at a time; the others are those of CIFAR-10 with M = 500."""
CELLS = (300, 3000, 10_020)
STEPS = 5
IMAGES = 100


def measure() -> list[Entry]:
    """Return SDAF's step, memory, fit and test against the smallest size, and plan of cells."""
    entries = []
    for name, sizes in SIZES.items():
        found = [_point(name, size) for size in sizes]
        for size, point in zip(sizes, found, strict=True):
            ratio = point["step ms"] / found[0]["step ms"]
            entries.append(
                Entry(f"SDAF step at {name} {size}", ratio, f"{name} {sizes[0]}", 0.0, point)
            )
    times = [_planned(count) for count in CELLS]
    for count, taken in zip(CELLS, times, strict=True):
        figures = {"seconds": round(taken, 2)}
        name = f"oclgrid plan of {count} finished cells"
        entries.append(Entry(name, taken / times[0], f"{CELLS[0]} cells", 0.0, figures))
    return entries


def _point(name: str, size: int) -> dict[str, float]:
    """Return what SDAF costs at a size, measured in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.growth", json.dumps({name: size})]
    return dict(json.loads(subprocess.check_output(command, text=True)))


def _planned(count: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name), count)
        return min(command_seconds("plan", "full.yaml", Path(name)) for _ in range(3))


def costs(options: dict[str, Any]) -> dict[str, float]:
    """Return times of a step, a fit of the classifier and a test, and the most memory held."""
    import torch

    from benchmarks.learners import LAST_STAGE, learner, take
    from oclgrid.trainables.predictor import evaluating

    torch.set_num_threads(1)
    method = learner("sdaf", **options)
    incoming = next(method.stream.batches(LAST_STAGE))
    take(method, incoming)
    step = sorted(seconds(lambda: take(method, incoming)) for _ in range(STEPS))[STEPS // 2]
    peak = megabytes("self/status", "VmHWM")
    started = time.perf_counter()
    predictor = method.predictor()
    fit = time.perf_counter() - started
    images = torch.rand(IMAGES, method.info.side, method.info.side, 3).permute(0, 3, 1, 2)
    with evaluating(predictor):
        predictor(images)
        test = seconds(lambda: predictor(images)) / IMAGES
    return {
        "step ms": round(1000 * step, 1),
        "resident MB": round(peak),
        "fit s": round(fit, 3),
        "test ms/image": round(1000 * test, 2),
    }


if __name__ == "__main__":
    print(json.dumps(costs(json.loads(sys.argv[1]))))
