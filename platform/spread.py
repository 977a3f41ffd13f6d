"""Mean and spread over class orders."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean and sample standard deviation over class orders; the latter needs two of them."""

    mean: float
    std: float | None


def spread(values: Sequence[float]) -> Spread:
    """Return mean and sample standard deviation (ddof 1)."""
    std = statistics.stdev(values) if len(values) > 1 else None
    return Spread(mean=statistics.fmean(values), std=std)
