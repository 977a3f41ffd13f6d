"""Result tables: one row per dataset, memory size and method, mean and spread over class orders."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from oclgrid.platform.results import NUMBERS, RULE, CellRun
from oclgrid.platform.spread import Spread, spread
from oclgrid.platform.verdict import OTHER, Judgement, departures, judge
from oclgrid.search_spaces.paper import Printed, paper
from oclgrid.trainables.spec import CellSpec

SECONDS = "seconds"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table."""

    spec: CellSpec
    """The first cell of the group."""
    label: str
    """The method, with what tells it from others of its name."""
    n: int
    """Class orders that have finished."""
    asked: int
    """Class orders in the sweep."""
    values: Mapping[str, Spread]
    ended_at_ms: int
    """When the last of them finished."""
    departures: Mapping[str, str] = field(default_factory=dict)
    """What differs from the paper's protocol and settings."""
    in_label: frozenset[str] = frozenset()
    """Those of its settings that the label tells."""
    printed: Mapping[str, Printed] = field(default_factory=dict)
    """The paper's E, A, F and beta, as far as it has them."""
    judgement: Judgement | None = None
    """On E; None where the paper has no number."""

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return self.spec.dataset

    @property
    def memory(self) -> int:
        """M."""
        return self.spec.memory_size

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.spec.method.name

    @property
    def beside(self) -> Mapping[str, Printed]:
        """The paper's A, F and beta, where they may stand beside ours."""
        return {} if self.departures else {k: v for k, v in self.printed.items() if k != "E"}

    @property
    def contest(self) -> tuple[object, ...]:
        """What rows have in common that may be compared with each other."""
        spec = self.spec
        return (self.dataset, self.memory, spec.protocol, spec.stream_fraction, spec.arrival)


def rows(cells: Iterable[CellSpec], found: Mapping[str, CellRun]) -> list[Row]:
    """Return a row for each group of cells that differ in class order only."""
    groups: dict[str, list[CellSpec]] = defaultdict(list)
    for spec in cells:
        groups[spec.group_id].append(spec)
    return _labelled([_row(group, found) for group in groups.values()])


def _row(group: list[CellSpec], found: Mapping[str, CellRun]) -> Row:
    runs = [found.get(s.cell_id) for s in group]
    finished = [r for r in runs if r is not None and r.is_finished]
    done = [r.numbers for r in finished]
    values = {k: spread([n[k] for n in done]) for k in NUMBERS if done}
    if done:
        values[SECONDS] = spread([n["train_seconds"] + n["inference_seconds"] for n in done])
    spec = group[0]
    row = Row(
        spec=spec,
        label=spec.method.name,
        n=len(done),
        asked=len(group),
        values=values,
        ended_at_ms=max((r.ended_at_ms for r in finished), default=0),
        departures=departures(spec),
        printed=_printed(spec),
    )
    if "E" not in row.printed:
        return row
    same = not row.departures
    verdict = judge(values.get("E"), row.printed["E"], n=row.n, asked=row.asked, same=same)
    return replace(row, judgement=verdict)


def _printed(spec: CellSpec) -> dict[str, Printed]:
    where: Any = {
        "dataset": spec.dataset,
        "memory": spec.memory_size,
        "method": spec.method.name,
    }
    numbers = {name: paper().number(name, **where) for name in NUMBERS}
    return {name: number for name, number in numbers.items() if number is not None}


def _labelled(table: list[Row]) -> list[Row]:
    """Return the rows with what tells those of one dataset, memory size and method apart."""
    alike: dict[tuple[str, int, str], list[Row]] = defaultdict(list)
    for row in table:
        alike[row.dataset, row.memory, row.method].append(row)
    return [_told_apart(row, alike[row.dataset, row.memory, row.method]) for row in table]


def _told_apart(row: Row, alike: list[Row]) -> Row:
    """Return the row with those of its settings in its name that not all the others have."""
    own, *others = (_settings(r) for r in (row, *(r for r in alike if r is not row)))
    told = {k: v for k, v in own.items() if any(o.get(k) != v for o in others)}
    label = f"{row.method} ({_listed(told)})" if told else row.label
    return replace(row, label=label, in_label=frozenset(told))


def _listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{k} {v}" for k, v in settings.items())


def _settings(row: Row) -> dict[str, str]:
    return {**row.departures, **({"seed": str(row.spec.seed)} if row.spec.seed else {})}


def best(table: Sequence[Row], name: str) -> set[int]:
    """Return the positions of the rows whose mean is the best among those it can be compared with.

    Where a row stands alone there is no best. F is the better the lower it is.
    """
    contests: dict[tuple[object, ...], dict[int, float]] = defaultdict(dict)
    for i, row in enumerate(table):
        if name in row.values:
            mean = row.values[name].mean
            contests[row.contest][i] = -mean if name == "F" else mean
    return {
        i
        for means in contests.values()
        if len(means) > 1
        for i, mean in means.items()
        if mean == max(means.values())
    }


def notes(table: Sequence[Row]) -> list[str]:
    """Return what must be said under the table: what is missing, the rule, the paper's slips."""
    told = []
    done, asked = sum(row.n for row in table), sum(row.asked for row in table)
    if done < asked:
        told.append(f"{done} of {asked} cells are finished.")
    judged = [row for row in table if row.judgement is not None]
    if any(row.judgement and row.judgement.verdict != OTHER for row in judged):
        told.append(RULE)
    others: dict[str, list[str]] = defaultdict(list)
    for row in judged:
        if row.departures:
            untold = {k: v for k, v in row.departures.items() if k not in row.in_label}
            others[_listed(untold) or "what stands in brackets"].append(row.method)
    for reason, methods in others.items():
        names = ", ".join(dict.fromkeys(methods))
        told.append(f"{OTHER}, so not judged against the paper: {reason} ({names}).")
    for row in judged:
        if not row.departures:
            told += paper().notes_on(tuple(row.printed), row.method)
    return list(dict.fromkeys(told))
