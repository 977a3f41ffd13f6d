"""The look all figures share: sizes for a phone, colours that colour-blind people tell apart."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.0
"""Inches; 360 points, so that a phone of 360 pixels shows 10-point text with 10 pixels."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette without its yellow, which is too faint on white."""
LINES = ("-", "--", ":")
MARKERS = "osD^vP*X"
GREY = "#666666"
LEGEND_SIZE = 9
"""Points of the letters of a legend."""
_SETTINGS = {
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": LEGEND_SIZE,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "svg.fonttype": "none",  # text stays text: small, searchable, in the reader's font
    "svg.hashsalt": "oclgrid",  # the same figure is the same bytes
}


@dataclass(frozen=True, slots=True)
class Mark:
    """How one of several things is told from the others."""

    colour: str
    line: str
    marker: str


def mark(position: int) -> Mark:
    """Return the mark of the thing at a position; line and marker differ where colours repeat."""
    return Mark(
        COLOURS[position % len(COLOURS)],
        LINES[position // len(COLOURS) % len(LINES)],
        MARKERS[position % len(MARKERS)],
    )


@contextmanager
def drawing(height: float, *, width: float = WIDTH) -> Iterator[tuple["Figure", "Axes"]]:
    """Yield an empty figure in the shared look, and its axes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):  # type: ignore[arg-type]  # names are checked when set
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.add_subplot()


def svg(figure: "Figure") -> str:
    """Return the figure as an SVG element, to stand in a page as it is."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def png(figure: "Figure") -> bytes:
    """Return the figure as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()
