"""What every benchmark shares: interleaved repeats and ratios with their spread."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
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
    is_gain: bool = False
    """Whether more is better; most entries say what something costs."""

    def plain(self) -> dict[str, Any]:
        """Return the entry for JSON."""
        return asdict(self)


def megabytes(file: str, name: str) -> float:
    """Return what a file of a process below /proc says of its memory."""
    lines = Path("/proc", file).read_text(encoding="ascii").splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(f"{name}:")) / 1024


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
    name: str,
    ratios: list[float],
    against: str,
    *,
    figures: dict[str, float] | None = None,
    is_gain: bool = True,
) -> Entry:
    """Return the median of the ratios, with their spread."""
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Entry(name, middle, against, high - low, figures or {}, is_gain)


def middle(times: list[float]) -> float:
    """Return the median in milliseconds, to three digits."""
    return float(f"{1000 * statistics.median(times):.3g}")


def table(result: dict[str, Any]) -> str:
    """Return a whole result as a Markdown table."""
    lines = ["| what | ratio | spread | against | measured |", "|---|---:|---:|---|---|"]
    for e in result["entries"]:
        figures = ", ".join(f"{k} {v:g}" for k, v in e["figures"].items())
        cells = (e["name"], f"{e['ratio']:.2f}", f"{e['spread']:.2f}", e["against"], figures)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
