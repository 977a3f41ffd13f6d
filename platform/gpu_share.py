"""The share of a GPU that `auto` means: as small as the memory of cells like these allows."""

from collections.abc import Iterable

from oclgrid.platform.capacity import GRAIN

UNMEASURED = 0.25
"""Share of a trial before anything like it has run on a GPU."""
MARGIN = 1.25
"""How much more than the largest peak ever measured a trial gets."""
MOST_TRIALS = 16
"""On one GPU, however little memory they need: each is a process with a CUDA context."""


def auto_share(peaks: Iterable[float]) -> float:
    """Return the share that is enough for each of several kinds of cells, as 1/n.

    Args:
        peaks: Of each kind, the largest part of a GPU's memory that one has needed; 0 where none
            was measured. Parts are of the GPU they were measured on: one with less memory
            may turn out too small, and then a trial gets twice the share (``oversight.py``).
    """
    return max((_share(peak) for peak in peaks), default=UNMEASURED)


def _share(peak: float) -> float:
    if not peak:
        return UNMEASURED
    trials = max(1, min(MOST_TRIALS, int(1 / (MARGIN * peak))))
    return GRAIN // trials / GRAIN  # rounded down, or the last of them would not fit
