"""Each method's work on one incoming batch: images per second, time outside the network, twin."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.learners import LAST_STAGE, learner, take
from benchmarks.measure import Entry, entry, interleaved
from benchmarks.plain import TWINS, made_plain, slowly
from oclgrid.trainables.method import Method
from oclgrid.trainables.registry import all_methods

REPEATS = 5
SAME_TRAINING = {"sdaf-align", "sdaf-euclid", "sdaf-identity"}
"""Variants that cost what SDAF costs."""


def measure() -> list[Entry]:
    """Return an entry for each method; one thread, all of them on the same images."""
    torch.set_num_threads(1)
    return [_measured(name) for name in all_methods() if name not in SAME_TRAINING]


def _measured(name: str) -> Entry:
    fast, plain = learner(name), made_plain(learner(name))
    incoming = next(fast.stream.batches(LAST_STAGE))
    same = plain.stream.fetch(incoming.indices)
    network = _Network(fast)
    spent: list[tuple[float, float]] = []

    def fast_batch() -> None:
        started = time.perf_counter()
        with network.watched():
            take(fast, incoming)
        spent.append((time.perf_counter() - started, network.seconds))

    def plain_batch() -> None:
        with slowly(name):
            take(plain, same)

    before = fast.trained_images
    fast_times, plain_times = interleaved([fast_batch, plain_batch], REPEATS)
    images = (fast.trained_images - before) / len(spent)
    outside = statistics.median(1 - inside / whole for whole, inside in spent[1:])
    return entry(
        f"{name} batch",
        [slow / quick for quick, slow in zip(fast_times, plain_times, strict=True)],
        f"NCHW, {TWINS[name]}" if name in TWINS else "NCHW",
        figures={
            "images/s": round(images / statistics.median(fast_times), 1),
            "outside the network": round(outside, 3),
        },
    )


class _Network:
    """Adds up the time a method spends in its network, forward and backward."""

    def __init__(self, method: Method[Any]) -> None:
        self._method = method
        self._depth, self._entered, self.seconds = 0, 0.0, 0.0

    def _enter(self, *_: object) -> None:
        if self._depth == 0:
            self._entered = time.perf_counter()
        self._depth += 1

    def _leave(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._entered

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            self._enter()
            try:
                return call(*args, **options)
            finally:
                self._leave()

        return timed

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count from zero while the block runs."""
        self.seconds = 0.0
        vmap = torch.func.vmap  # GSS goes forward and backward inside one call of it
        with ExitStack() as stack:
            for part in self._method.net.values():
                stack.callback(part.register_forward_pre_hook(self._enter).remove)
                stack.callback(part.register_forward_hook(self._leave).remove)
            for owner, name in ((torch.Tensor, "backward"), (torch.autograd, "grad")):
                stack.enter_context(patch.object(owner, name, self._timed(getattr(owner, name))))
            stack.enter_context(
                patch(
                    "oclgrid.trainables.methods.gss.vmap",
                    lambda f, **options: self._timed(vmap(f, **options)),
                )
            )
            yield
