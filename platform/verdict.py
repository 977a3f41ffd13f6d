"""Our numbers against the paper's: the difference, how sure it is, and what may be said of it."""

import math
from dataclasses import dataclass

from oclgrid.platform.spread import Spread
from oclgrid.search_spaces.paper import Printed, paper
from oclgrid.trainables.spec import CellSpec

WITHIN, OUTSIDE = "within", "outside"
FEW, NO_SPREAD, OTHER = "too few orders", "no spread", "other protocol"
ENOUGH_ORDERS = 3
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What may be said of one of our numbers beside the paper's."""

    printed: Printed
    verdict: str
    difference: float | None = None
    """Ours minus the paper's; None where the two do not measure the same."""
    margin: float | None = None
    """Half the 95 % interval of the difference; None where a spread is not known."""


def judge(ours: Spread | None, printed: Printed, *, n: int, asked: int, same: bool) -> Judgement:
    """Return the verdict on a mean over ``n`` of ``asked`` class orders.

    Args:
        ours: None where no class order has finished.
        printed: What the paper has.
        n: Class orders that have finished.
        asked: Class orders in the sweep.
        same: Whether protocol and settings are the paper's.
    """
    if not same:
        return Judgement(printed=printed, verdict=OTHER)
    if ours is None:
        return Judgement(printed=printed, verdict=FEW)
    difference = ours.mean - printed.mean
    if n < max(asked, ENOUGH_ORDERS) or ours.std is None:
        return Judgement(printed=printed, verdict=FEW, difference=difference)
    if printed.std is None:
        return Judgement(printed=printed, verdict=NO_SPREAD, difference=difference)
    margin = welch_margin((ours.std, n), (printed.std, paper().orders))
    verdict = WITHIN if abs(difference) <= margin else OUTSIDE
    return Judgement(printed=printed, verdict=verdict, difference=difference, margin=margin)


def welch_margin(one: tuple[float, int], two: tuple[float, int]) -> float:
    """Return half the 95 % interval of the difference of two means (Welch, 1947).

    Args:
        one: Sample standard deviation and size of the first sample.
        two: Those of the second.
    """
    from scipy.special import stdtrit  # Student's t quantile; scipy.stats takes a second to import

    parts = [(std * std / size, size - 1) for std, size in (one, two)]
    variance = sum(v for v, _ in parts)
    if variance == 0:
        return 0.0
    degrees = variance**2 / sum(v * v / d for v, d in parts)
    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)


def departures(spec: CellSpec) -> dict[str, str]:
    """Return what differs from the paper's protocol and settings, by the names of a sweep file."""
    found = spec.changed
    if spec.stream_fraction != 1:
        found["stream_fraction"] = f"{spec.stream_fraction:g}"
    if spec.protocol != "test":
        found["protocol"] = spec.protocol
    if spec.arrival != "drawn":
        found["arrival"] = spec.arrival
    return found
