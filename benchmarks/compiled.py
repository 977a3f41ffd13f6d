"""SDAF's step with the network compiled by torch.compile against the step as it is."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.measure import Entry, entry, interleaved, seconds

REPEATS = 9


def measure() -> list[Entry]:
    """Return the gain, with the seconds of a first step on an empty and on a full cache."""
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = _fresh(cache), _fresh(cache)
    figures = {"first step, s": cold["first"], "first step from the cache, s": warm["first"]}
    return [entry("SDAF step compiled", warm["ratios"], "the step as it is", figures=figures)]


def _fresh(cache: str) -> dict[str, Any]:
    """Return what a new process measures that keeps what it compiles in a folder."""
    said = subprocess.check_output(
        [sys.executable, "-m", "benchmarks.compiled"],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache},
        text=True,
    )
    return dict(json.loads(said.splitlines()[-1]))


def steps() -> dict[str, Any]:
    """Return the seconds of the first compiled step, and the gain of later ones."""
    import torch

    from benchmarks.learners import LAST_STAGE, learner, take

    torch.set_num_threads(1)
    eager, compiled = learner("sdaf"), learner("sdaf")
    backbone: Any = compiled.net["backbone"]
    backbone.forward = torch.compile(backbone.forward, dynamic=False)
    incoming = next(eager.stream.batches(LAST_STAGE))
    first = seconds(lambda: take(compiled, incoming))
    plain, made = interleaved(
        [lambda: take(eager, incoming), lambda: take(compiled, incoming)], REPEATS
    )
    ratios = [p / m for p, m in zip(plain, made, strict=True)]
    return {"first": round(first, 1), "ratios": ratios}


if __name__ == "__main__":
    print(json.dumps(steps()))
