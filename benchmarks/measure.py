"""What every benchmark shares: interleaved repeats and ratios with their spread."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """One measured ratio."""

    name: str
    ratio: float
    against: str
    spread: float
    """Difference of the upper and the lower quartile of the ratio over the repeats."""
    figures: dict[str, float] = field(default_factory=dict)
    """What else was measured."""

    def plain(self) -> dict[str, Any]:
        """Return the entry for JSON."""
        return asdict(self)


def seconds(call: Callable[[], object]) -> float:
    """Return the wall time of a call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def interleaved(calls: list[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Return the times of each call, all of them measured in turn, after one unmeasured round."""
    rounds = [[seconds(call) for call in calls] for _ in range(repeats + 1)][1:]
    return [list(times) for times in zip(*rounds, strict=True)]


def entry(
    name: str, ratios: list[float], against: str, *, figures: dict[str, float] | None = None
) -> Entry:
    """Return the median of the ratios, with their spread."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Entry(name, middle, against, high - low, figures or {})
