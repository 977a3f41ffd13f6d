"""Cells that another command works on: wait for them, take up those it leaves."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from oclgrid.platform.claims import BEAT_SECONDS, Driver
from oclgrid.platform.display import Display
from oclgrid.platform.plan import Plan
from oclgrid.platform.results import ANALYSIS_ERROR
from oclgrid.platform.stopping import Stop
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.spec import CellSpec

if TYPE_CHECKING:
    from oclgrid.platform.store import Store

LOOKS_PER_LINE = 6


class Shared(Protocol):
    """A store, and this command in it."""

    store: "Store"
    driver: Driver


class Left(NamedTuple):
    """What others have left us of the cells they worked on."""

    plan: Plan
    """Cells to try now; others may still work on some of them."""
    failed: dict[str, str]
    """Why, by cell id."""


def wait_for_others(plan: Plan, shared: Shared, display: Display, stop: Stop) -> Left:
    """Return as soon as a cell of the plan is free, or others work on none of them any more.

    Every wait ends: a driver that no longer beats loses its claims after a lease.
    """
    pause, looks = threading.Event(), 0
    failed: dict[str, str] = {}
    while True:
        # In this order: who has given up a claim has filed before what is filed.
        claims = shared.driver.elsewhere()
        plan = replace(plan, found=shared.store.cells(plan.cells))
        failed |= {
            c.cell_id: plan.found[c.cell_id].error
            for c in plan.cells
            if plan.state(c) == "failed" and c.cell_id not in claims
        }
        plan = replace(plan, cells=tuple(c for c in plan.cells if _is_open(plan, c, failed)))
        if any(c.cell_id not in claims for c in plan.cells) or not plan.cells or stop.is_asked:
            return Left(plan, failed)
        if looks % LOOKS_PER_LINE == 0:
            for line in _lines(plan, claims):
                display.say(line)
        looks += 1
        pause.wait(BEAT_SECONDS)


def _is_open(plan: Plan, spec: CellSpec, failed: dict[str, str]) -> bool:
    """Return whether something is left to do for a cell."""
    state = plan.state(spec)
    if state == "to analyse":
        return not plan.found[spec.cell_id].tags.get(ANALYSIS_ERROR)
    return state != "finished" and spec.cell_id not in failed


def _lines(plan: Plan, claims: dict[str, str]) -> Iterator[str]:
    for spec in plan.cells:
        stages = dataset(spec.dataset).stages
        yield (
            f"waiting for {spec.title}: {plan.stage(spec)} of {stages} stages are done "
            f"by {claims[spec.cell_id]}"
        )
