"""Figures that compare the methods of a sweep, as SVG; values come by method and class order."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from oclgrid.platform.look import GREY, LEGEND_SIZE, drawing, mark, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = Mapping[str, Sequence[float]]
"""By method, one value for each class order. Methods keep their order, and with it their colour."""
LEGEND_LETTERS = 56
"""What a line of a legend has room for; names of variants are long."""
LEGEND_MOST = 68
"""Letters that fit into a line at their usual size; longer names are set smaller."""
LEGEND_LINES, LEGEND_LINE = 3, 0.2
"""Lines of a legend that a figure has room for, and the inches that each further one adds."""
MOST_BANDS = 6
"""Curves whose spread can be shown; the bands of more lie over one another."""
Curves = Mapping[str, Sequence[Sequence[float]]]
"""By method, one curve for each class order."""


def stagewise_figure(accuracies: Curves, *, title: str = "") -> str:
    """Return accuracy after each stage: mean over class orders, band of one standard deviation.

    Where there are too many methods for bands, the means alone.

    Args:
        accuracies: In [0, 1], of the classes seen so far, one value per stage.
        title: What the sweep is.
    """
    with drawing(3.8) as (figure, axes):
        _bands(axes, {m: 100 * np.asarray(c) for m, c in accuracies.items()})
        stages = max(len(c[0]) for c in accuracies.values())
        axes.set_xticks(range(1, stages + 1))
        axes.set_xlabel("stage")
        axes.set_ylabel("accuracy on the classes seen, %")
        axes.set_title(title)
        return svg(figure)


def scree_overlay_figure(spectra: Curves, *, title: str = "") -> str:
    """Return eigenvalues of the features' covariance, descending, on a logarithmic scale."""
    with drawing(3.8) as (figure, axes):
        _bands(axes, {m: np.asarray(c) for m, c in spectra.items()}, markers=False)
        axes.set_yscale("log")
        axes.set_xlabel("rank of the eigenvalue")
        axes.set_ylabel("eigenvalue")
        axes.set_title(title)
        return svg(figure)


def forgetting_figure(forgetting: Values, *, title: str = "") -> str:
    """Return forgetting F (Eq. 16) as bars; lower is better."""
    return _bars({"": forgetting}, xlabel="forgetting F (lower is better)", title=title)


def cka_bars_figure(seen: Values, unseen: Values, *, title: str = "") -> str:
    """Return how alike the backbones of contiguous stages are, on seen and on unseen data."""
    groups = {"seen stages": seen, "unseen stages": unseen}
    return _bars(groups, xlabel="linear CKA (higher: changes less)", title=title, limit=1.0)


def accuracy_bars_figure(accuracies: Mapping[str, Values], *, title: str = "") -> str:
    """Return accuracies in [0, 1], by group, then by method."""
    return _bars(_percent(accuracies), xlabel="accuracy, %", title=title, limit=100.0, digits=1)


def ood_bars_figure(auc: Mapping[str, Values], *, title: str = "") -> str:
    """Return how well outliers are told from the cell's own test images.

    Args:
        auc: By outlier set, then by method: areas under the ROC curve, in [0, 1].
        title: What the sweep is.
    """
    label = "area under the ROC curve, % (50: by chance)"
    return _bars(_percent(auc), xlabel=label, title=title, limit=100.0, digits=1, chance=50.0)


def _percent(groups: Mapping[str, Values]) -> dict[str, Values]:
    return {k: {m: [100 * v for v in a] for m, a in vs.items()} for k, vs in groups.items()}


def time_figure(train_seconds: Values, inference_seconds: Values, *, title: str = "") -> str:
    """Return mean seconds of all stages, training and inference stacked."""
    methods = list(train_seconds)
    train = np.array([np.mean(train_seconds[m]) for m in methods])
    inference = np.array([np.mean(inference_seconds[m]) for m in methods])
    with drawing(1.3 + 0.3 * len(methods)) as (figure, axes):
        axes.barh(methods, train, color=mark(0).colour, label="training")
        axes.barh(methods, inference, left=train, color=mark(1).colour, label="inference")
        for y, total in enumerate(train + inference):
            _tell(axes, y, f"{total:.0f}")
        axes.set_xlabel("seconds, all stages")
        _finish(axes, title)
        return svg(figure)


def _bands(axes: "Axes", curves: Mapping[str, np.ndarray], *, markers: bool = True) -> None:
    for i, (method, curve) in enumerate(curves.items()):
        style = mark(i)
        x, mean = np.arange(1, curve.shape[1] + 1), curve.mean(axis=0)
        axes.plot(x, mean, style.line, c=style.colour, label=method, lw=1.6,
                  marker=style.marker if markers else None, ms=4)  # fmt: skip
        if len(curve) > 1 and len(curves) <= MOST_BANDS:
            std = curve.std(axis=0, ddof=1)
            axes.fill_between(x, mean - std, mean + std, color=style.colour, alpha=0.15, lw=0)
    axes.grid(axis="y")
    letters = max(map(len, curves), default=0) + 6  # of the mark beside a name
    columns = min(4, max(1, LEGEND_LETTERS // letters))
    _grow(axes, LEGEND_LINE * max(0, math.ceil(len(curves) / columns) - LEGEND_LINES))
    size = LEGEND_SIZE * min(1.0, LEGEND_MOST / letters)
    axes.figure.legend(loc="outside lower center", ncols=columns, fontsize=size)


def _grow(axes: "Axes", inches: float) -> None:
    figure = axes.get_figure(root=True)
    assert figure is not None  # drawing() has made it
    figure.set_figheight(figure.get_figheight() + inches)


def _bars(
    groups: Mapping[str, Values],
    *,
    xlabel: str,
    title: str,
    limit: float | None = None,
    digits: int = 3,
    chance: float | None = None,
) -> str:
    """Return a bar per method and group, its mean beside it, a dot for every class order."""
    methods = list(dict.fromkeys(m for values in groups.values() for m in values))
    thick = 0.8 / len(groups)
    with drawing(1.1 + 0.25 * (len(groups) + 0.5) * len(methods)) as (figure, axes):
        for i, (name, values) in enumerate(groups.items()):
            rows = {methods.index(m) - 0.4 + (i + 0.5) * thick: v for m, v in values.items() if v}
            means = [float(np.mean(v)) for v in rows.values()]
            axes.barh(list(rows), means, 0.92 * thick, color=mark(i).colour, alpha=0.85, label=name)
            for (y, each), mean in zip(rows.items(), means, strict=True):
                if len(each) > 1:
                    axes.plot(each, [y] * len(each), ".", c="black", ms=3)
                _tell(axes, y, f"{mean:.{digits}f}")
        axes.set_yticks(range(len(methods)), methods)
        if chance is not None:
            axes.axvline(chance, c=GREY, lw=0.8, ls="--")
        if limit is not None:
            axes.set_xlim(0, limit)
        axes.set_xlabel(xlabel)
        _finish(axes, title, legend=len(groups) > 1)
        return svg(figure)


def _tell(axes: "Axes", y: float, text: str) -> None:
    """Write the number of a row at its right end."""
    where = axes.get_yaxis_transform()
    axes.text(1.02, y, text, transform=where, va="center", fontsize=9)


def _finish(axes: "Axes", title: str, *, legend: bool = True) -> None:
    """Put the first row on top, and the title and legend where there is room."""
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_title(title)
    if legend:
        axes.figure.legend(loc="outside lower center", ncols=3)
