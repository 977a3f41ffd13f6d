"""What a report is made of: rows, runs and files of a sweep, and how its parts name them."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from oclgrid.platform import page
from oclgrid.platform.results import CellRun, Source
from oclgrid.platform.spread import spread
from oclgrid.platform.table import Row, rows
from oclgrid.platform.table_formats import shown
from oclgrid.search_spaces.paper import SETTING, Printed, paper
from oclgrid.search_spaces.sweep import Sweep
from oclgrid.trainables.spec import CellSpec

DRAWN = 3
"""Datasets and memory sizes that get figures; the tables have all."""
PICTURES = 12
"""Pictures of single cells in a section."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """What the sections of a report are made of."""

    sweep: Sweep
    source: Source
    found: Mapping[str, CellRun]
    table: list[Row]
    finished: Mapping[str, list[tuple[CellSpec, CellRun]]]
    """The finished cells of each group, by class order."""
    stages: Mapping[str, list[float]]
    """Accuracy after each stage, by run."""

    @classmethod
    def of(cls, sweep: Sweep, source: Source) -> "Material":
        """Return all that a source knows of a sweep."""
        found = source.cells(sweep.cells)
        finished: dict[str, list[tuple[CellSpec, CellRun]]] = defaultdict(list)
        for spec in sorted(sweep.cells, key=lambda s: s.class_order):
            run = found.get(spec.cell_id)
            if run is not None and run.is_finished:
                finished[spec.group_id].append((spec, run))
        return cls(
            sweep=sweep,
            source=source,
            found=found,
            table=rows(sweep.cells, found),
            finished=finished,
            stages=source.stage_accuracies(r.run_id for runs in finished.values() for _, r in runs),
        )

    def runs(self, row: Row) -> list[CellRun]:
        """Return the finished runs of a row, by class order."""
        return [run for _, run in self.finished.get(row.spec.group_id, [])]

    def curves(self, row: Row) -> list[list[float]]:
        """Return the accuracy after each stage of a row's runs, by class order."""
        return [self.stages[run.run_id] for run in self.runs(row)]

    def contests(self) -> list[list[Row]]:
        """Return the rows that can be compared with each other and have results."""
        contests: dict[tuple[object, ...], list[Row]] = defaultdict(list)
        for row in self.table:
            if row.n:
                contests[row.contest].append(row)
        return list(contests.values())

    def drawn(self) -> list[list[Row]]:
        """Return the few contests that get figures: those with most methods first."""
        return sorted(self.contests(), key=len, reverse=True)[:DRAWN]


def numbers(m: Material, contest: Sequence[Row], name: str) -> dict[str, list[float]]:
    """Return a number of each row's runs, by label; rows without it are left out."""
    found = {
        row.label: [run.numbers[name] for run in m.runs(row) if name in run.numbers]
        for row in contest
    }
    return {label: each for label, each in found.items() if each}


def pictures(m: Material, path: str, alt: Callable[[Row, CellSpec, CellRun], str]) -> str:
    """Return a picture of the first class order of each row that has one, up to a number."""
    parts: list[str] = []
    for row in m.table:
        for spec, run in m.finished.get(row.spec.group_id, [])[:1]:
            if content := m.source.artifact(run.run_id, path):
                parts.append(page.png_figure(content, alt=alt(row, spec, run)))
        if len(parts) == PICTURES:
            told = f"No more than {PICTURES} are shown; the others are in the cells' runs."
            return page.figures(parts) + page.paragraph(told)
    return page.figures(parts)


def where(row: Row) -> str:
    """Return what rows that can be compared have in common, in words."""
    told = f"{row.dataset}, M = {row.memory}"
    if row.spec.stream_fraction != 1:
        told += f", {row.spec.stream_fraction:g} of the stream"
    if row.spec.arrival != "drawn":
        told += f", {row.spec.arrival} order"
    return told + (", validation" if row.spec.protocol != "test" else "")


def place(row: Row) -> list[str]:
    """Return the words a line of a table begins with."""
    return [row.dataset, str(row.memory), row.label]


def stage_lines(m: Material) -> tuple[list[list[str]], list[str]]:
    """Return accuracies after each stage, header first, the paper's below ours; and notes."""
    ours = [row for row in m.table if row.n]
    count = max((len(c) for row in ours for c in m.curves(row)), default=0)
    lines = [["dataset", "memory", "method", *(f"stage {t}" for t in range(1, count + 1))]]
    told = []
    for row in ours:
        stages = zip(*m.curves(row), strict=True)
        lines.append([*place(row), *(shown("E", spread(s)) for s in stages)])
        printed = paper().stages(row.method)
        if printed and (row.dataset, row.memory) == SETTING and not row.departures:
            values = [shown("E", Printed(v)) for v in printed]
            lines.append([row.dataset, str(row.memory), f"{row.method}, paper", *values])
            told += paper().notes_on(("stages",), row.method)
    return [line + [""] * (len(lines[0]) - len(line)) for line in lines], told
