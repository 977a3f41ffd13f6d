"""Figures of one cell, as PNG."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oclgrid.platform.look import GREY, drawing, mark, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def confusion_figure(
    counts: Sequence[Sequence[int]], classes: Sequence[int], *, title: str
) -> bytes:
    """Return a picture of a confusion matrix, rows scaled to shares, classes in arrival order."""
    table = np.asarray(counts, dtype=float)
    share = table / table.sum(axis=1, keepdims=True)
    with drawing(4.6) as (figure, axes):
        image = axes.imshow(share, vmin=0, vmax=1, cmap="cividis")
        if len(classes) <= 20:
            axes.set_xticks(range(len(classes)), [str(c) for c in classes])
            axes.set_yticks(range(len(classes)), [str(c) for c in classes])
            _write_values(axes, share, fontsize=7)
        axes.set_xlabel("predicted class, in order of arrival")
        axes.set_ylabel("true class, in order of arrival")
        axes.set_title(title)
        figure.colorbar(image, label="share of test images", shrink=0.8)
        return png(figure)


def cka_figure(table: Sequence[Sequence[float]], *, title: str) -> bytes:
    """Return the CKA of contiguous stages as a heat map; a line parts seen data from unseen."""
    values = np.asarray(table, dtype=float)
    pairs, stages = values.shape
    with drawing(1.3 + 0.62 * pairs) as (figure, axes):
        image = axes.imshow(values, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        if stages <= 10:
            _write_values(axes, values, fontsize=9 if stages <= 5 else 7)
        steps = np.repeat(np.arange(pairs + 1), 2)
        axes.plot(steps[:-2] + 0.5, steps[1:-1] - 0.5, c="white", lw=2.5)
        axes.set_xticks(range(stages), [str(s) for s in range(1, stages + 1)])
        axes.set_yticks(range(pairs), [f"{t} and {t + 1}" for t in range(1, pairs + 1)])
        axes.set_xlabel("images of stage (seen: left of the line)")
        axes.set_ylabel("backbones after stages")
        axes.set_title(title)
        figure.colorbar(image, label="linear CKA")
        return png(figure)


def roc_figure(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    areas: Mapping[str, float],
    *,
    title: str,
) -> bytes:
    """Return ROC curves of outliers, dashed where the centres come from the memory.

    Args:
        curves: False and true positive rates by set; "_memory" at the end of a name says whose
            centres they are.
        areas: Under the curves, by the same names.
        title: What the cell is.
    """
    names = [name for name in curves if not name.endswith("_memory")]
    with drawing(4.4) as (figure, axes):
        for name, (false, true) in curves.items():
            position = names.index(name.removesuffix("_memory"))
            label = name.replace("_memory", ", memory") + f": {100 * areas[name]:.1f} %"
            line = "-" if name in names else "--"
            axes.plot(false, true, line, c=mark(position).colour, lw=1.6, label=label)
        axes.plot([0, 1], [0, 1], ":", c=GREY, lw=1)
        axes.set_aspect("equal")
        axes.set_xlabel("share of test images taken for outliers")
        axes.set_ylabel("share of outliers found")
        axes.set_title(title)
        axes.legend(title="area under the curve", loc="lower right")
        return png(figure)


def plane_figure(kinds: Mapping[str, Sequence[Sequence[float]]], *, title: str) -> bytes:
    """Return points in the plane, a colour and marker for each kind."""
    with drawing(4.6) as (figure, axes):
        for i, (kind, points) in enumerate(kinds.items()):
            x, y = np.asarray(points, dtype=float).reshape(-1, 2).T
            style = mark(i)
            axes.plot(x, y, style.marker, c=style.colour, ms=3, mew=0, alpha=0.55, label=kind)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        axes.set_aspect("equal", "datalim")
        axes.set_title(title)
        figure.legend(loc="outside lower center", ncols=2, markerscale=2)
        return png(figure)


def accuracies_figure(accuracies: Mapping[str, float], *, title: str) -> bytes:
    """Return a bar for each accuracy, in their order from above."""
    with drawing(1.2 + 0.35 * len(accuracies)) as (figure, axes):
        names = [name.replace("_", " ") for name in accuracies]
        bars = axes.barh(names, [100 * a for a in accuracies.values()], color=mark(0).colour)
        axes.bar_label(bars, fmt="%.1f", padding=3)
        axes.set_xlim(0, 100)
        axes.invert_yaxis()
        axes.set_xlabel("accuracy, %")
        axes.set_title(title)
        return png(figure)


def scree_figure(eigenvalues: Sequence[float], *, title: str) -> bytes:
    """Return eigenvalues of the features' covariance, descending, on a logarithmic scale."""
    with drawing(3.4) as (figure, axes):
        style = mark(0)
        x = range(1, len(eigenvalues) + 1)
        axes.plot(x, eigenvalues, c=style.colour, marker=style.marker, ms=3, lw=1.4)
        axes.set_yscale("log")
        axes.grid(axis="y")
        axes.set_xlabel("rank of the eigenvalue")
        axes.set_ylabel("eigenvalue")
        axes.set_title(title)
        return png(figure)


def _write_values(axes: "Axes", values: npt.NDArray[np.float64], *, fontsize: float) -> None:
    for (row, column), value in np.ndenumerate(values):
        colour = "black" if value > 0.5 else "white"
        axes.text(
            column, row, f"{value:.2f}", ha="center", va="center", c=colour, fontsize=fontsize
        )
