"""Confirm a search: its winner against the paper's point on the test protocol, order by order."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from oclgrid.platform.results import NUMBERS, CellRun
from oclgrid.platform.study import TrialRow
from oclgrid.search_spaces.search import Search
from oclgrid.search_spaces.sweep import Sweep
from oclgrid.trainables.spec import CellSpec

ORDERS = 3


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The sweep that confirms a search, and what its runs are tagged with."""

    sweep: Sweep
    labels: dict[str, dict[str, str]]


def confirmation(search: Search, best: TrialRow) -> Confirmation:
    """Return the winner and the paper's point as an ordinary sweep over the first class orders."""
    cells: list[CellSpec] = []
    labels: dict[str, dict[str, str]] = {}
    for name, number, point in (
        ("best", best.number, best.point),
        ("paper", 0, search.space.reference),
    ):
        method = search.space.config(point)
        for order in range(ORDERS):
            spec = replace(search.around, class_order=order, method=method, protocol="test")
            cells.append(spec)
            labels[spec.cell_id] = {
                "chosen_as": name,
                "chosen_from": search.study,
                "chosen_trial": str(number),
            }
    sweep = Sweep(
        name=f"{search.study}-confirm",
        about=f"trial {best.number} of {search.study} and the paper's point, test protocol",
        cells=tuple(cells),
        resources=search.resources,
    )
    return Confirmation(sweep, labels)


def told(chosen: Confirmation, found: dict[str, CellRun], number: int) -> str:
    """Return the differences in words: each number's by class order, their mean, and n."""
    best, paper = chosen.sweep.cells[:ORDERS], chosen.sweep.cells[ORDERS:]
    pairs = [
        (found[a.cell_id], found[b.cell_id])
        for a, b in zip(best, paper, strict=True)
        if all(c.cell_id in found and found[c.cell_id].is_finished for c in (a, b))
    ]
    if not pairs:
        return "no class order is finished for both points yet\n"
    lines = [
        f"trial {number} minus the paper's point, test protocol, n = {len(pairs)} class orders"
    ]
    shown: dict[str, Callable[[float], str]] = {
        name: (lambda d: f"{100 * d:+.1f} %") if name in ("E", "A") else (lambda d: f"{d:+.3f}")
        for name in NUMBERS
    }
    for name in NUMBERS:
        gaps = [a.numbers[name] - b.numbers[name] for a, b in pairs]
        each = ", ".join(map(shown[name], gaps))
        lines.append(f"  {name:4} mean {shown[name](statistics.fmean(gaps))}  (by order: {each})")
    return "\n".join(lines) + "\n"
