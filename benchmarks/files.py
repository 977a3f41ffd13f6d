"""Keeping a stage and opening a dataset: against one training step, and against reading it all."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.learners import LAST_STAGE, learner, take
from benchmarks.measure import Entry, entry, interleaved, middle
from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables import decoded
from oclgrid.trainables.datasets import DATASETS, data_root, load
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.sources import Images, Splits

REPEATS = 9
SWEEP = {
    "sweep": "stage",
    "cells": {"dataset": "digits", "memory": 500, "method": "sdaf", "stream_fraction": 0.05},
}


def measure() -> list[Entry]:
    """Return the ratios; one thread, sizes of CIFAR-10."""
    torch.set_num_threads(1)
    return [*_checkpoint(), *_opening()]


def _checkpoint() -> list[Entry]:
    """The network and so the checkpoint are the same for digits and CIFAR-10."""
    cell = Cell(parse_sweep(SWEEP, where="benchmark").cells[0], data_root())
    cell.run_stage()
    content = cell.checkpoint()
    sdaf = learner("sdaf")
    incoming = next(sdaf.stream.batches(LAST_STAGE))
    calls = [cell.checkpoint, lambda: cell.resume(content), lambda: take(sdaf, incoming)]
    save, load, step = interleaved(calls, REPEATS)
    size = {"MB": round(len(content) / 1e6, 1)}
    return [
        entry(
            f"{name} a stage's checkpoint",
            [t / s for t, s in zip(times, step, strict=True)],
            "one SDAF step",
            figures={"ms": middle(times), **size},
            is_gain=False,
        )
        for name, times in (("saving", save), ("loading", load))
    ]


def _opening() -> list[Entry]:
    random = np.random.default_rng(0)

    def images(count: int) -> Images:
        pixels = random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        return Images(pixels, np.arange(count) % 10)

    made = Splits(images(50_000), images(10_000))
    info = replace(DATASETS["cifar10"], digest=decoded.UNDECODED, read=lambda *_: made)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        load(info, root)
        plain = root / "plain.npy"
        np.save(plain, made.train.images)
        time.sleep(decoded.SETTLED_SECONDS)  # what was written just now is checked every time

        def anew() -> None:
            decoded._checked.clear()  # as in a process that has not seen the file yet
            load(info, root)

        first, again, read = interleaved(
            [anew, lambda: load(info, root), lambda: np.load(plain)], REPEATS
        )
    return [
        entry(
            f"opening 60,000 images, {name}",
            [t / r for t, r in zip(times, read, strict=True)],
            "np.load of 50,000",
            figures={"ms": middle(times)},
            is_gain=False,
        )
        for name, times in (("checked by digest", first), ("again in the same process", again))
    ]
