"""Two methods against each other, paired over class orders: effect, interval and exact test."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from oclgrid.platform.results import CellRun
from oclgrid.platform.spread import spread
from oclgrid.platform.table import Row, rows
from oclgrid.platform.table_formats import SHOWN, lined_up
from oclgrid.search_spaces.sweep import Sweep
from oclgrid.trainables.schema import SpecError, unknown

CONFIDENCE = 0.95
HEADER = ["dataset", "memory", "first", "second", "n", "mean difference", "95 % interval", "p"]
EXACT_ORDERS = 20
"""Up to this many class orders every one of the 2^n sign flips is counted."""
DRAWS = 100_000
TIE = 1e-12
"""Means this close count as equal, whatever the order they were summed in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two rows of a table, paired over the class orders both have finished."""

    one: Row
    two: Row
    number: str
    orders: tuple[int, ...]
    differences: tuple[float, ...]
    """Of the number, first minus second, by class order."""

    @property
    def mean(self) -> float:
        """Mean difference."""
        return math.fsum(self.differences) / len(self.differences)

    @property
    def margin(self) -> float:
        """Half the 95 % interval of the mean difference, by Student's t."""
        from scipy.special import stdtrit

        n, std = len(self.differences), spread(self.differences).std
        assert std is not None, "an interval needs two class orders"
        return float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * std / math.sqrt(n)

    @property
    def p_value(self) -> float:
        """Two-sided p of the sign-flip test."""
        return sign_flip_p(self.differences)

    @property
    def smallest_p(self) -> float:
        """The least p that so many class orders can give."""
        return 2.0 ** (1 - len(self.differences))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return how often flipped signs give a mean at least as far from zero as the one observed.

    Exact up to 20 differences: all 2^n flips are counted, the observed one among them. Beyond
    that, 100,000 flips drawn with a fixed seed, and the observed one.
    """
    values = np.asarray(differences, dtype=float)
    reached = abs(values.sum()) - TIE
    if len(values) <= EXACT_ORDERS:
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= reached).mean())
    generator = np.random.default_rng(0)
    signs = generator.choice((-1.0, 1.0), size=(DRAWS, len(values)))
    return float((1 + (np.abs(signs @ values) >= reached).sum()) / (1 + DRAWS))


def compare(
    sweep: Sweep, found: Mapping[str, CellRun], names: tuple[str, str], *, number: str
) -> list[Comparison]:
    """Return the comparisons of two methods wherever a sweep has both.

    Args:
        sweep: Whose cells to compare.
        found: What is known of them.
        names: Each a method, ``method@memory``, or a group id.
        number: E, A, F or beta.
    """
    table = rows(sweep.cells, found)
    one, two = (_select(table, name) for name in names)
    pairs = [(a, b) for a, b in product(one, two) if a is not b and _comparable(a, b, names)]
    if not pairs:
        raise SpecError(
            f"{names[0]} and {names[1]} have no dataset, memory size and protocol in common in "
            f"{sweep.name}; name memory sizes, as in sdaf@500 ewc@0"
        )
    _require_unambiguous(pairs, names)
    values = by_order(sweep, found, number)
    made = [pair_up(a, b, values, number=number) for a, b in pairs]
    if all(len(c.orders) < 2 for c in made):
        most = max(len(c.orders) for c in made)
        raise SpecError(
            f"{names[0]} and {names[1]} share {most} finished class orders in {sweep.name}; a "
            f"paired comparison needs at least 2: ask for more orders and run them"
        )
    return made


def pair_up(
    one: Row, two: Row, values: Mapping[str, Mapping[int, float]], *, number: str
) -> Comparison:
    """Return the comparison of two rows over the class orders both have finished."""
    first, second = values[one.spec.group_id], values[two.spec.group_id]
    orders = tuple(sorted(first.keys() & second.keys()))
    differences = tuple(first[o] - second[o] for o in orders)
    return Comparison(one=one, two=two, number=number, orders=orders, differences=differences)


def by_order(
    sweep: Sweep, found: Mapping[str, CellRun], number: str
) -> dict[str, dict[int, float]]:
    """Return a number of the finished cells, by group and class order."""
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for spec in sweep.cells:
        run = found.get(spec.cell_id)
        if run is not None and run.is_finished:
            values[spec.group_id][spec.class_order] = run.numbers[number]
        else:
            values[spec.group_id]  # known, though empty
    return dict(values)


def _select(table: Sequence[Row], name: str) -> list[Row]:
    method, _, memory = name.partition("@")
    chosen = [r for r in table if name in (r.spec.group_id, r.label)]
    chosen = chosen or [r for r in table if r.method == method and memory in ("", str(r.memory))]
    if not chosen:
        known = {r.method for r in table} | {f"{r.method}@{r.memory}" for r in table}
        raise unknown("method of this sweep", name, known)
    return chosen


def _comparable(one: Row, two: Row, names: tuple[str, str]) -> bool:
    """Whether two rows measure the same; groups and memory sizes are taken as they were named."""
    if names == (one.spec.group_id, two.spec.group_id):
        return True
    if all("@" in name for name in names):
        return (one.dataset, one.contest[2:]) == (two.dataset, two.contest[2:])
    return one.contest == two.contest


def _require_unambiguous(pairs: list[tuple[Row, Row]], names: tuple[str, str]) -> None:
    seen: dict[tuple[object, ...], tuple[Row, Row]] = {}
    for pair in pairs:
        key = (pair[0].contest, pair[1].contest)
        if key in seen:
            labels = dict.fromkeys(f"'{r.label}'" for r in (*seen[key], *pair))
            raise SpecError(
                f"{names[0]} and {names[1]} are ambiguous; name two of {', '.join(labels)}"
            )
        seen[key] = pair


def to_markdown(made: Sequence[Comparison]) -> str:
    """Return the comparisons as a table, and below it how to read them."""
    lines = [HEADER, *(line(c) for c in made)]
    below = "".join(f"- {note}\n" for note in reading(made))
    return f"{lined_up(lines, range(len(HEADER)))}\n{below}"


def line(c: Comparison) -> list[str]:
    """Return a comparison under ``HEADER``."""
    memory = str(c.one.memory)
    if c.one.memory != c.two.memory:
        memory += f" and {c.two.memory}"
    told = [c.one.dataset, memory, c.one.label, c.two.label, str(len(c.orders))]
    return [*told, *_effect(c)]


def _effect(c: Comparison) -> list[str]:
    if len(c.orders) < 2:
        return ["too few orders", "-", "-"]
    scale, digits = SHOWN[c.number]
    mean, margin = scale * c.mean, scale * c.margin
    interval = f"{mean - margin:+.{digits}f} to {mean + margin:+.{digits}f}"
    return [f"{mean:+.{digits}f}", interval, f"{c.p_value:.3g}"]


def reading(made: Sequence[Comparison]) -> list[str]:
    """Return how to read comparisons, and what so few class orders cannot show."""
    number = made[0].number
    unit = "percentage points" if SHOWN[number][0] == 100 else "its own unit"
    told = [
        f"Difference of {number}, first minus second, in {unit}, paired over class orders; the "
        f"interval is Student's t, p the two-sided sign-flip test.",
    ]
    for n in sorted({len(c.orders) for c in made if len(c.orders) > 1}):
        if n <= EXACT_ORDERS:
            told.append(f"With {n} class orders p cannot fall below {2.0 ** (1 - n):.3g}.")
        else:
            told.append(f"With {n} class orders p is of {DRAWS:,} random flips.")
    return told
