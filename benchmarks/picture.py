"""Draw how cost grows from a result of `make bench`: `python -m benchmarks.picture RESULT PNG`."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from oclgrid.platform.look import GREY, drawing, mark, png

PANELS = {
    "side": "side of an image",
    "classes": "classes seen",
    "memory": "memory size M",
}
"""What is changed, and how it is called in the picture."""
COSTS = {
    "step ms": "a training step, ms",
    "resident MB": "resident memory, MB",
    "fit s": "fitting the classifier, s",
    "test ms/image": "testing an image, ms",
}


def points(result: dict[str, Any]) -> dict[str, dict[int, dict[str, float]]]:
    """Return the figures of each size, by what was changed."""
    found: dict[str, dict[int, dict[str, float]]] = {name: {} for name in PANELS}
    for e in result["entries"]:
        if match := re.fullmatch(r"SDAF step at (\w+) (\d+)", e["name"]):
            found[match[1]][int(match[2])] = e["figures"]
    return found


def picture(result: dict[str, Any]) -> bytes:
    """Return a panel for each cost and each thing that is changed, as PNG."""
    found = points(result)
    with drawing(9.0, width=8.0) as (figure, first):
        first.remove()
        panels = figure.subplots(len(COSTS), len(PANELS), sharey="row", sharex="col")
        for row, (cost, label) in zip(panels, COSTS.items(), strict=True):
            for position, (axes, name) in enumerate(zip(row, PANELS, strict=True)):
                sizes = sorted(found[name])
                values = [found[name][size][cost] for size in sizes]
                style = mark(position)
                axes.plot(sizes, values, style.marker + "-", c=style.colour, lw=1.6)
                axes.grid(visible=True)
            row[0].set_ylabel(label)
            row[0].set_ylim(bottom=0)  # of the whole row, which shares its scale
        for axes, what in zip(panels[-1], PANELS.values(), strict=True):
            axes.set_xlabel(what)
        usual = "SDAF at 32x32, 10 classes, M = 500, one thread; one of them changed at a time"
        figure.suptitle(usual, fontsize=10, color=GREY)
        return png(figure)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_bytes(picture(json.loads(source.read_text(encoding="utf-8"))))
