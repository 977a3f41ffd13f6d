"""The trials of a search as plain rows: the best of them, and as CSV for the store and people."""

import csv
import io
from dataclasses import dataclass

from oclgrid.platform.results import NUMBERS
from oclgrid.search_spaces.search import SMALLER_IS_BETTER, Search
from oclgrid.search_spaces.space import Choice, Int, Point, Range, Value

TRIALS = "trials.csv"
"""Where in its run a search has its trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRow:
    """What the study knows of one trial."""

    number: int
    state: str
    """One of "finished", "pruned", "failed", "running" and "waiting"."""
    point: dict[str, Value]
    values: tuple[float, ...]
    """The objectives: of the whole trial, or, pruned, of its last step. Empty before that."""
    steps: dict[int, float]
    """The single objective after each step, a stage of a class order."""
    reached: int
    """Steps done."""
    numbers: dict[str, float]
    """E, A, F and beta as far as the trial came, mean over class orders."""
    seconds: float
    """Of training and inference, over all class orders."""
    cells: tuple[str, ...]
    error: str


def best_of(search: Search, rows: list[TrialRow]) -> list[TrialRow]:
    """Return the best finished trial; with several objectives all that none betters."""
    signs = [-1 if o in SMALLER_IS_BETTER else 1 for o in search.objectives]

    def betters(one: TrialRow, other: TrialRow) -> bool:
        gains = [s * (a - b) for s, a, b in zip(signs, one.values, other.values, strict=True)]
        return min(gains) >= 0 and max(gains) > 0

    finished = [row for row in rows if row.state == "finished"]
    finished.sort(key=lambda row: (-signs[0] * row.values[0], row.number))
    if len(signs) == 1:
        return finished[:1]
    return [row for row in finished if not any(betters(other, row) for other in finished)]


def beside_paper(search: Search, rows: list[TrialRow]) -> list[tuple[str, TrialRow]]:
    """Return the best trials, the first of them named so, and the paper's point, if finished."""
    named = [("best" if i == 0 else "", row) for i, row in enumerate(best_of(search, rows))]
    finished = (row for row in rows if row.state == "finished")
    paper = next((row for row in finished if row.point == search.space.reference), None)
    return named if paper is None else [*named, ("paper", paper)]


def counted(rows: list[TrialRow]) -> str:
    """Return how many trials are in each state, in words."""
    states = [row.state for row in rows]
    known = ("finished", "pruned", "failed", "running", "waiting")
    parts = [f"{states.count(s)} {s}" for s in known if states.count(s)]
    return ", ".join(parts) or "no trials"


def judged_on(search: Search) -> str:
    """Return what the numbers of a search are of, in words."""
    n = len(search.orders)
    orders = "1 class order" if n == 1 else f"the mean over {n} class orders"
    return f"on validation data, {orders}; no test image was used"


def trials_csv(search: Search, rows: list[TrialRow]) -> str:
    """Return the trials as CSV; accuracies are exact fractions, empty fields are not known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parameters = list(search.space.ranges)
    writer.writerow(
        ["trial", "state", *parameters, *NUMBERS, "steps", "of", "seconds", "cells", "error"]
    )
    for row in rows:
        known = [row.numbers.get(n, "") for n in NUMBERS]
        point = [row.point.get(p, "") for p in parameters]
        cost = [row.reached, search.steps, f"{row.seconds:.1f}"]
        cells = " ".join(row.cells)
        writer.writerow([row.number, row.state, *point, *known, *cost, cells, row.error])
    return text.getvalue()


def read_trials(search: Search, text: str) -> list[TrialRow]:
    """Return the trials that ``trials_csv`` wrote, without their single steps."""
    return [_row(search, line) for line in csv.DictReader(io.StringIO(text, newline=""))]


def _row(search: Search, line: dict[str, str]) -> TrialRow:
    numbers = {name: float(line[name]) for name in NUMBERS if line[name]}
    return TrialRow(
        number=int(line["trial"]),
        state=line["state"],
        point={n: _value(r, line[n]) for n, r in search.space.ranges.items() if line[n]},
        values=tuple(numbers[o] for o in search.objectives if o in numbers),
        steps={},
        reached=int(line["steps"]),
        numbers=numbers,
        seconds=float(line["seconds"]),
        cells=tuple(line["cells"].split()),
        error=line["error"],
    )


def _value(range_: Range, text: str) -> Value:
    """Return a value of a range that was written as text."""
    if isinstance(range_, Choice):
        return next(option for option in range_.options if str(option) == text)
    return int(text) if isinstance(range_, Int) else float(text)


def told(point: Point) -> str:
    """Return a point for people."""
    return ", ".join(f"{name} {brief(value)}" for name, value in point.items())


def brief(value: Value) -> str:
    """Return a value with as many digits as a person reads."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
