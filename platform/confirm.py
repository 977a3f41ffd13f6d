"""Confirm a search: its winner against the paper's point on the test protocol, order by order."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from oclgrid.platform import comparing, table
from oclgrid.platform.comparing import by_order
from oclgrid.platform.results import NUMBERS, CellRun
from oclgrid.platform.table_formats import SHOWN
from oclgrid.platform.trials import TrialRow
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


def told(chosen: Confirmation, found: Mapping[str, CellRun], number: int) -> str:
    """Return the winner minus the paper's point in every number, paired over class orders."""
    best, paper = table.rows(chosen.sweep.cells, found)
    made = [
        comparing.pair_up(best, paper, by_order(chosen.sweep, found, name), number=name)
        for name in NUMBERS
    ]
    if not made[0].orders:
        return "no class order is finished for both points yet\n"
    orders = ", ".join(map(str, made[0].orders))
    lines = [f"trial {number} minus the paper's point, test protocol, class orders {orders}:"]
    for c in made:
        scale, digits = SHOWN[c.number]
        unit = " %" if scale == 100 else ""
        each = ", ".join(f"{scale * d:+.{digits}f}" for d in c.differences)
        lines.append(f"  {c.number:4} mean {scale * c.mean:+.{digits}f}{unit} ({each})")
    return "\n".join(lines) + "\n"
