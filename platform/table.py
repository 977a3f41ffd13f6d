"""Result tables: one row per dataset, memory size and method, mean and spread over class orders."""

import csv
import io
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from oclgrid.platform.results import NUMBERS, CellRun
from oclgrid.trainables.spec import CellSpec

SECONDS = "seconds"
FORMATS = ("markdown", "csv")


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean and sample standard deviation over class orders; the latter needs two of them."""

    mean: float
    std: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One line of the table."""

    dataset: str
    memory: int
    method: str
    n: int
    """Class orders that have finished."""
    asked: int
    """Class orders in the sweep."""
    values: dict[str, Spread]
    ended_at_ms: int
    """When the last of them finished."""


def rows(cells: Iterable[CellSpec], found: dict[str, CellRun]) -> list[Row]:
    """Return a row for each group of cells that differ in class order only."""
    groups: dict[str, list[CellSpec]] = defaultdict(list)
    for spec in cells:
        groups[spec.group_id].append(spec)
    return [_row(group, found) for group in groups.values()]


def _row(group: list[CellSpec], found: dict[str, CellRun]) -> Row:
    runs = [found[s.cell_id] for s in group if s.cell_id in found]
    finished = [r for r in runs if r.is_finished]
    done = [r.numbers for r in finished]
    values = {k: spread([n[k] for n in done]) for k in NUMBERS if done}
    if done:
        values[SECONDS] = spread([n["train_seconds"] + n["inference_seconds"] for n in done])
    spec = group[0]
    return Row(
        dataset=spec.dataset,
        memory=spec.memory_size,
        method=spec.method.name,
        n=len(done),
        asked=len(group),
        values=values,
        ended_at_ms=max((r.ended_at_ms for r in finished), default=0),
    )


def spread(values: list[float]) -> Spread:
    """Return mean and sample standard deviation (ddof 1)."""
    std = statistics.stdev(values) if len(values) > 1 else None
    return Spread(mean=statistics.fmean(values), std=std)


def to_csv(table: list[Row], *, seconds: bool = True) -> str:
    """Return the table as CSV; accuracies are fractions, empty fields are not known (yet)."""
    names = [*NUMBERS, *([SECONDS] if seconds else [])]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["dataset", "memory", "method", "n", *(f"{k}_{s}" for k in names for s in ("mean", "std"))]
    )
    for row in table:
        fields = [
            "" if value is None else f"{value:.6f}"
            for k in names
            for value in _parts(row.values.get(k))
        ]
        writer.writerow([row.dataset, row.memory, row.method, row.n, *fields])
    return text.getvalue()


def _parts(value: Spread | None) -> tuple[float | None, float | None]:
    return (None, None) if value is None else (value.mean, value.std)


def to_markdown(table: list[Row], *, seconds: bool = True) -> str:
    """Return the table for people: E and A in percent, F and beta as fractions, as in the paper."""
    header = ["dataset", "memory", "method", "n", "E %", "A %", "F", "beta"]
    lines = [header + (["seconds"] if seconds else [])]
    for row in table:
        cells = [row.dataset, str(row.memory), row.method]
        cells.append(str(row.n) if row.n == row.asked else f"{row.n} of {row.asked}")
        cells += [_shown(row.values.get(k), scale=100, digits=1) for k in ("E", "A")]
        cells += [_shown(row.values.get(k), scale=1, digits=3) for k in ("F", "beta")]
        if seconds:
            cells.append(_shown(row.values.get(SECONDS), scale=1, digits=0))
        lines.append(cells)
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(lines[0]))]
    rule = ["-" * w if i < 3 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    lines.insert(1, rule)

    def padded(line: list[str]) -> str:
        parts = [
            c.ljust(w) if i < 3 else c.rjust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        return "| " + " | ".join(parts) + " |\n"

    return "".join(map(padded, lines))


def _shown(value: Spread | None, *, scale: float, digits: int) -> str:
    if value is None:
        return "-"
    mean = f"{value.mean * scale:.{digits}f}"
    return mean if value.std is None else f"{mean} ± {value.std * scale:.{digits}f}"
