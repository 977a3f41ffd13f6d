"""What a sweep spends while it runs: against its budget, and against what was expected."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from oclgrid.platform.display import clock
from oclgrid.platform.plan import Plan
from oclgrid.search_spaces.sweep import Sweep


class Ledger:
    """Counts the stages of one call; those of earlier calls are paid already."""

    def __init__(
        self,
        sweep: Sweep,
        asked: Mapping[str, float],
        plan: Plan,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take note of the budget, of what a trial owns, and of what was spent before."""
        if asked:
            sweep.budget.check_countable(asked)
        self._budget, self._price, self._asked = sweep.budget, sweep.price, asked
        self._before, self._estimator, self._clock = plan.spent_seconds, plan.estimator, clock
        self._cells = {spec.cell_id: spec for spec in sweep.cells}
        self._started = clock()
        self.seconds = 0.0
        """What the stages of this call took."""
        self.compared = 0.0
        """What those of them took that were estimated."""
        self.expected = 0.0
        """What these were estimated to take."""

    def note(self, result: Mapping[str, Any]) -> str:
        """Take note of what a stage took; return why none may begin now, "" while one may."""
        if seconds := float(result.get("stage_seconds") or 0.0):
            self.seconds += seconds
            expected = self._estimator.stage_seconds(self._cells[result["cell_id"]])
            if expected is not None:
                self.compared += seconds
                self.expected += expected
        return self.reason

    @property
    def spent(self) -> dict[str, float]:
        """What is spent of each thing that a budget can limit."""
        hours = (self._before + self.seconds) / 3600
        core_hours, gpu_hours = (hours * self._asked.get(kind, 0.0) for kind in ("CPU", "GPU"))
        return {
            "hours": (self._clock() - self._started) / 3600,
            "core_hours": core_hours,
            "gpu_hours": gpu_hours,
            "money": self._price.of(core_hours, gpu_hours),
        }

    @property
    def reason(self) -> str:
        """Why no further stage may begin; "" while one may."""
        for name, amount in self.spent.items():
            limit = getattr(self._budget, name)
            if limit is not None and amount >= limit:
                return f"the budget of {limit:g} {name.replace('_', ' ')} is spent"
        return ""

    @property
    def told(self) -> str:
        """What the stages of this call took against what was expected; "" if nothing was."""
        if not self.expected:
            return ""
        percent = 100 * (self.compared / self.expected - 1)
        return (
            f"the stages took {clock(self.compared)} of one trial, "
            f"{clock(self.expected)} were expected ({percent:+.0f} %)"
        )
