"""Figures with one shared look, as PNG bytes."""

import io
from collections.abc import Sequence

import numpy as np


def confusion_figure(
    counts: Sequence[Sequence[int]], classes: Sequence[int], *, title: str
) -> bytes:
    """Return a picture of a confusion matrix, rows scaled to shares, classes in arrival order."""
    from matplotlib.figure import Figure

    table = np.asarray(counts, dtype=float)
    share = table / table.sum(axis=1, keepdims=True)
    figure = Figure(figsize=(6, 5.4), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(share, vmin=0, vmax=1, cmap="cividis")
    if len(classes) <= 20:
        axes.set_xticks(range(len(classes)), [str(c) for c in classes])
        axes.set_yticks(range(len(classes)), [str(c) for c in classes])
        for (row, column), value in np.ndenumerate(share):
            colour = "black" if value > 0.5 else "white"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", c=colour, fontsize=7)
    axes.set_xlabel("predicted class, in order of arrival")
    axes.set_ylabel("true class, in order of arrival")
    axes.set_title(title)
    figure.colorbar(image, label="share of test images")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
