"""Pictures of a study: what was tried, what it gave, and what mattered."""

import io
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from oclgrid.platform.study import Study
from oclgrid.platform.trials import TrialRow
from oclgrid.search_spaces.search import SMALLER_IS_BETTER, Search
from oclgrid.search_spaces.space import Choice, Range, Value

BLUE, ORANGE, GREY = "#2b6ca3", "#d9822b", "#9a9a9a"
COLOURS = "cividis"
NEAR = 0.25
"""How far from a trial, in sides of the square, its value still says something."""


def pictures(study: Study) -> dict[str, bytes]:
    """Return every picture that the trials so far allow, by file name."""
    search, rows = study.search, [r for r in study.rows() if r.state in ("finished", "pruned")]
    finished = [r for r in rows if r.state == "finished"]
    if not finished:
        return {}
    made = {"history.png": _history(search, rows), "slice.png": _slice(search, rows)}
    if importances := study.importances():
        made["importance.png"] = _importance(search, importances)
    if len(search.objectives) == 1:
        made["intermediate_values.png"] = _steps(search, rows)
    else:
        made["objectives.png"] = _objectives(search, finished, study.best())
    if len(finished) > 1:
        made["parallel_coordinates.png"] = _parallel(search, finished)
    for a, b in _pairs(search, importances):
        having = [r for r in rows if a in r.point and b in r.point]
        dots = np.array([[r.point[a], r.point[b]] for r in having if r.state == "finished"])
        # A surface needs some points, and not all on one line.
        if len(dots) >= 4 and np.linalg.matrix_rank(dots - dots.mean(axis=0)) == 2:
            made[f"contour_{a}_{b}.png"] = _contour(search, having, (a, b))
    return made


def _picture(width: float, height: float, draw: Callable[[Any], None]) -> bytes:
    """Return what ``draw`` puts on an empty figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    draw(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def _axes(figure: Any, *place: Any, **options: Any) -> Any:
    axes = figure.add_subplot(*place, **options)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _label(search: Search, objective: str | None = None) -> str:
    n = len(search.orders)
    orders = "1 class order" if n == 1 else f"mean of {n} class orders"
    return f"validation {objective or search.objectives[0]} ({orders})"


def _is_paper(search: Search, row: TrialRow) -> bool:
    return row.point == search.space.reference


def _history(search: Search, rows: list[TrialRow]) -> bytes:
    """Each trial by number, and the best so far."""
    keep = np.minimum if search.objectives[0] in SMALLER_IS_BETTER else np.maximum

    def draw(figure: Any) -> None:
        axes = _axes(figure)
        _scatter(search, axes, rows, lambda row: row.number)
        done = [r for r in rows if r.state == "finished"]
        best = keep.accumulate([r.values[0] for r in done])
        axes.step([r.number for r in done], best, where="post", c=BLUE, lw=1.2, label="best so far")
        axes.set(xlabel="trial", ylabel=_label(search), title=f"{search.name}: history")
        axes.set_xlim(-0.5, max(r.number for r in rows) + 0.5)  # marks on the floor set no limits
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False)

    return _picture(7, 4.2, draw)


def _scatter(
    search: Search, axes: Any, rows: Sequence[TrialRow], x: Callable[[TrialRow], Any]
) -> None:
    """Draw finished trials as dots, the paper's point as a star, pruned ones on the floor.

    A pruned trial's value is of an early stage and cannot be compared with the others'.
    """
    done = [r for r in rows if r.state == "finished" and not _is_paper(search, r)]
    axes.scatter([x(r) for r in done], [r.values[0] for r in done], c=BLUE, s=32, label="finished")
    for row in rows:
        if row.state == "finished" and _is_paper(search, row):
            axes.scatter(
                x(row), row.values[0], marker="*", c=ORANGE, s=150, zorder=3, label="paper's point"
            )
    pruned = [x(r) for r in rows if r.state == "pruned"]
    floor = axes.get_xaxis_transform()
    axes.scatter(
        pruned, [0.02] * len(pruned), marker="x", c=GREY, s=24, transform=floor, label="pruned"
    )


def _scale(axes: Any, which: str, name: str, range_: Range) -> None:
    """Give an axis of a parameter its name, scale and limits."""
    axes.set(**{f"{which}label": name})
    if isinstance(range_, Choice):
        axes.set(**{f"{which}ticks": range(len(range_.options))})
        axes.set(**{f"{which}ticklabels": [str(o) for o in range_.options]})
        axes.set(**{f"{which}lim": (-0.5, len(range_.options) - 0.5)})
        return
    if range_.log:
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set(**{f"{which}scale": "log"})
        axes.set(**{f"{which}lim": (range_.low, range_.high)})
        axis = axes.xaxis if which == "x" else axes.yaxis
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    else:
        margin = 0.03 * (range_.high - range_.low)
        axes.set(**{f"{which}lim": (range_.low - margin, range_.high + margin)})


def _place(range_: Range, value: Value) -> float:
    return range_.options.index(value) if isinstance(range_, Choice) else float(value)


def _slice(search: Search, rows: list[TrialRow]) -> bytes:
    """The objective against each parameter by itself."""
    ranges = search.space.ranges
    columns = min(3, len(ranges))
    lines = -(-len(ranges) // columns)

    def draw(figure: Any) -> None:
        first: Any = None
        for i, (name, range_) in enumerate(ranges.items()):
            axes = _axes(figure, lines, columns, i + 1, sharey=first)
            first = first or axes
            having = [r for r in rows if name in r.point]
            _scatter(search, axes, having, lambda r, n=name, g=range_: _place(g, r.point[n]))  # type: ignore[misc]
            _scale(axes, "x", name, range_)
            if i % columns == 0:
                axes.set_ylabel(_label(search))
        first.legend(frameon=False, fontsize=8)
        figure.suptitle(f"{search.name}: each parameter by itself")

    return _picture(max(5.0, 3.8 * columns), 3.6 * lines + 0.4, draw)


def _importance(search: Search, importances: dict[str, float]) -> bytes:
    """Each parameter's share of the variance."""
    names = sorted(importances, key=lambda n: importances[n])

    def draw(figure: Any) -> None:
        axes = _axes(figure)
        bars = axes.barh(names, [importances[n] for n in names], color=BLUE)
        axes.bar_label(bars, fmt="%.2f", padding=3)
        axes.set(xlim=(0, 1.08), xlabel=f"share of the variance of {search.objectives[0]} (fANOVA)")
        axes.set_title(f"{search.name}: which parameter matters")

    return _picture(7, 1.6 + 0.42 * len(names), draw)


def _steps(search: Search, rows: list[TrialRow]) -> bytes:
    """The objective after each stage."""

    def draw(figure: Any) -> None:
        axes = _axes(figure)
        for row in sorted(rows, key=lambda r: (r.state == "finished", _is_paper(search, r))):
            is_paper = _is_paper(search, row)
            colour = ORANGE if is_paper else BLUE if row.state == "finished" else GREY
            look = {"c": colour, "lw": 2.2 if is_paper else 1.1, "marker": ".", "ms": 5}
            axes.plot(list(row.steps), list(row.steps.values()), **look)
        for colour, name in ((ORANGE, "paper's point"), (BLUE, "finished"), (GREY, "pruned")):
            axes.plot([], [], c=colour, label=name)
        orders = "" if len(search.orders) == 1 else ", one class order after the other"
        axes.set(xlabel=f"stage{orders}", ylabel=_label(search))
        axes.set_title(f"{search.name}: intermediate values")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(frameon=False)

    return _picture(7, 4.2, draw)


def _objectives(search: Search, rows: list[TrialRow], best: list[TrialRow]) -> bytes:
    """The first objective against the second."""

    def draw(figure: Any) -> None:
        axes = _axes(figure)
        groups = ((rows, BLUE, "finished"), (best, ORANGE, "bettered by none"))
        for chosen, colour, label in groups:
            pairs = [r.values[:2] for r in chosen]
            axes.scatter(*zip(*pairs, strict=True), c=colour, label=label)
        for row in rows:
            axes.annotate(str(row.number), row.values[:2], fontsize=7, xytext=(4, 3),
                          textcoords="offset points")  # fmt: skip
        x, y = search.objectives[:2]
        axes.set(xlabel=_label(search, x), ylabel=_label(search, y))
        axes.set_title(f"{search.name}: objectives (numbers are trials)")
        axes.legend(frameon=False)

    return _picture(6.4, 4.8, draw)


def _pairs(search: Search, importances: dict[str, float]) -> list[tuple[str, str]]:
    """Return the pairs to draw contours of: lambda with tau_w, else the two that matter most."""
    numbers = [n for n, r in search.space.ranges.items() if not isinstance(r, Choice)]
    if "lambda" in numbers and "tau_w" in numbers:
        return [("lambda", "tau_w")]
    known = [n for n in importances if n in numbers]
    return list(combinations(known[:2], 2))


def _contour(search: Search, rows: list[TrialRow], names: tuple[str, str]) -> bytes:
    """The objective over two parameters, near the finished trials."""
    from matplotlib.ticker import MaxNLocator

    ranges = [search.space.ranges[n] for n in names]
    places = {r.number: tuple(float(r.point[n]) for n in names) for r in rows}
    finished = [r for r in rows if r.state == "finished"]
    dots = np.array([places[r.number] for r in finished])
    values = np.array([r.values[0] for r in finished])

    def draw(figure: Any) -> None:
        axes = _axes(figure)
        for which, name, range_ in zip("xy", names, ranges, strict=True):
            _scale(axes, which, name, range_)
        levels = MaxNLocator(12).tick_values(values.min(), values.max())
        filled = axes.contourf(*_surface(ranges, dots, values), levels=levels, cmap=COLOURS)
        axes.scatter(*dots.T, c=values, cmap=COLOURS, norm=filled.norm, ec="white", s=46, zorder=3)
        for row in finished:
            axes.annotate(str(row.number), places[row.number], fontsize=7, xytext=(5, 4),
                          textcoords="offset points")  # fmt: skip
        for row in rows:
            if row.state == "pruned":
                axes.scatter(*places[row.number], marker="x", c=GREY, s=26)
        axes.scatter([], [], marker="x", c=GREY, s=26, label="pruned")
        if all(n in search.space.reference for n in names):
            paper = [float(search.space.reference[n]) for n in names]
            axes.scatter(*paper, marker="*", c=ORANGE, ec="white", s=220, zorder=4,
                         label="paper's point")  # fmt: skip
        axes.legend(fontsize=8)
        axes.set_title(f"{search.name}: {names[0]} and {names[1]}\n(dots: finished trials)")
        figure.colorbar(filled, label=_label(search))

    return _picture(6.8, 5.4, draw)


def _surface(ranges: list[Range], dots: Any, values: Any) -> tuple[Any, Any, Any]:
    """Return a grid of both parameters and a smooth surface near the trials.

    Thin-plate splines over the unit square (logarithms where the range is logarithmic), lightly
    smoothed, as validation accuracies are noisy. Held to the values there are, and left blank
    where no finished trial is near: nothing is made up.
    """
    from scipy.interpolate import RBFInterpolator

    known = _square(ranges, dots)
    a, b = np.meshgrid(*(np.array(r.grid(120), dtype=float) for r in ranges))
    wanted = _square(ranges, np.stack([a.ravel(), b.ravel()], axis=1))
    spline = RBFInterpolator(known, values, smoothing=1e-3, degree=1)
    surface = np.clip(spline(wanted), values.min(), values.max())
    distance = np.linalg.norm(wanted[:, None] - known[None], axis=2).min(axis=1)
    surface[distance > NEAR] = np.nan
    return a, b, surface.reshape(a.shape)


def _square(ranges: list[Range], points: Any) -> Any:
    """Return points of two parameters within the unit square."""
    columns = [
        [_height(range_, value) for value in column]
        for range_, column in zip(ranges, points.T, strict=True)
    ]
    return np.array(columns).T


def _parallel(search: Search, rows: list[TrialRow]) -> bytes:
    """Every finished trial as a line through its parameters to the objective."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    names = [n for n in search.space.ranges if any(n in r.point for r in rows)]
    values = [r.values[0] for r in rows]
    norm = Normalize(min(values), max(values))
    mapper = ScalarMappable(norm, COLOURS)

    def draw(figure: Any) -> None:
        axes = _axes(figure)
        axes.spines["left"].set_visible(False)
        for i, name in enumerate(names):
            _upright(axes, i, search.space.ranges[name])
        for row in sorted(rows, key=lambda r: r.values[0]):
            heights = [
                _height(search.space.ranges[n], row.point[n]) if n in row.point else np.nan
                for n in names
            ]
            is_paper = _is_paper(search, row)
            look = {"lw": 2.4, "ls": "--"} if is_paper else {"lw": 1.4, "ls": "-"}
            at = [*heights, float(norm(row.values[0]))]
            axes.plot(at, c=mapper.to_rgba(np.array(row.values[0])), marker=".", **look)
        axes.axvline(len(names), c=GREY, lw=0.8)
        axes.set_xticks(range(len(names) + 1), [*names, search.objectives[0]])
        axes.set(yticks=[], ylim=(-0.06, 1.06), xlim=(-0.25, len(names) + 0.15))
        axes.set_title(f"{search.name}: finished trials\n(the paper's dashed)")
        if len(names) > 5:
            axes.tick_params(axis="x", rotation=35)
        figure.colorbar(mapper, ax=axes, label=_label(search))

    return _picture(max(6.5, 1.3 * len(names) + 3), 4.6, draw)


def _height(range_: Range, value: Value) -> float:
    """Return where a value stands on an upright axis from 0 to 1."""
    if isinstance(range_, Choice):
        return range_.options.index(value) / (len(range_.options) - 1)
    forth = np.log if range_.log else float
    low, high = forth(range_.low), forth(range_.high)
    return float((forth(float(value)) - low) / (high - low))


def _upright(axes: Any, at: int, range_: Range) -> None:
    """Draw the axis of one parameter with its values."""
    axes.axvline(at, c=GREY, lw=0.8)
    for value in range_.grid(3):
        text = f"{value:.3g}" if isinstance(value, float) else str(value)
        axes.annotate(text, (at, _height(range_, value)), xytext=(-4, 2), ha="right", fontsize=7,
                      textcoords="offset points", c="#555555")  # fmt: skip
