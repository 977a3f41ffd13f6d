"""What a person sees while a search runs: its trials, and the best so far."""

from rich.text import Text

from oclgrid.platform.display import Display
from oclgrid.platform.study import Study
from oclgrid.platform.trials import told
from oclgrid.search_spaces.search import Search
from oclgrid.search_spaces.space import Point


class SearchDisplay(Display):
    """Progress of a search, on standard error: cells come as trials begin."""

    def __init__(self) -> None:
        super().__init__()
        self._titles: dict[str, str] = {}
        self._numbers: dict[int, list[str]] = {}
        self._study: Study | None = None
        self._standing = ""

    def follow(self, study: Study) -> None:
        """Show how this study stands from now on."""
        self._study = study
        self._look()

    def begin(self, number: int, point: Point, search: Search) -> None:
        """Show the cells of a trial that begins."""
        cells = {spec.cell_id: spec for spec in search.cells(point)}
        self._numbers[number] = list(cells)
        for cell_id, spec in cells.items():
            order = f" order {spec.class_order}" if len(search.orders) > 1 else ""
            self._titles[cell_id] = f"trial {number}{order} ({told(point)})"
        # Made anew, not added to: another thread may be going through them.
        self._state = {**self._state, **{cell_id: {"stage": 0} for cell_id in cells}}
        self._cells = {**self._cells, **cells}

    def end(self, number: int, state: str) -> None:
        """Show how a trial ended."""
        for cell_id in self._numbers[number]:
            if not self._state[cell_id].get("done"):
                self._state[cell_id] |= {"done": True, "ended": state}
        self._look()
        if state != "waiting" and not self._is_live:
            self.say(f"{self._count()} trial {number}: {state}")

    def lost(self, number: int, why: str) -> None:
        """Tell that a trial failed through no fault of its own and goes on."""
        if not self._is_live:
            self.say(f"trial {number}: {why}, going on from its last stage")

    def _look(self) -> None:
        assert self._study is not None
        search, rows = self._study.search, self._study.rows()
        states = [row.state for row in rows]
        limit = search.budget.trials
        parts = [f"{states.count('finished')} finished", f"{states.count('pruned')} pruned"]
        if limit is not None:
            parts[-1] += f" of {limit} trials"
        for row in self._study.best()[:1]:
            name = search.objectives[0]
            parts.append(f"best {name} {row.values[0]:.4f} at {told(row.point)}")
        self._standing = ", ".join(parts)

    def _count(self) -> str:
        return f"[{self._standing}]"

    def _title(self, cell_id: str) -> str:
        return self._titles[cell_id]

    def _line(self, cell_id: str) -> tuple[Text, ...]:
        title, stage, *rest = super()._line(cell_id)
        if ended := self._state[cell_id].get("ended"):
            stage = Text(ended, style="yellow")
        return title, stage, *rest
