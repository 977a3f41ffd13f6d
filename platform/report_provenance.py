"""A report's sections on where its numbers come from: commits, machines, data, every cell."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from oclgrid.platform import page
from oclgrid.platform.page import Section
from oclgrid.platform.results import CellRun
from oclgrid.trainables.spec import CellSpec


def provenance(
    cells: Iterable[CellSpec], runs: Sequence[CellRun], *, facts: Mapping[str, str], text: str
) -> Section:
    """Return what the runs say of themselves, and how many say so.

    Args:
        cells: Whose data is named.
        runs: Of cells with results.
        facts: What else is known.
        text: The file that asked for it all.
    """
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for run in runs:
        for key, value in run.tags.items():
            if key == "commit" or key.startswith(("version.", "hardware.")):
                counts[key, value] += 1
    lines = [["what", "value", "cells"]]
    lines += [[key, value, str(count)] for (key, value), count in sorted(counts.items())]
    digests = {(spec.dataset, spec.data_digest) for spec in cells}
    lines += [[f"digest of {name}", digest, ""] for name, digest in sorted(digests)]
    lines += [[key, value, ""] for key, value in {**facts, **_clock(runs)}.items()]
    body = page.table(lines, caption="Where the numbers come from", words=2, long=1)
    if text:
        body += f"<h3>As it was asked for</h3>{page.verbatim(text)}"
    return Section("provenance", "Provenance", body)


def _clock(runs: Sequence[CellRun]) -> dict[str, str]:
    if not runs:
        return {}
    seconds = sum(r.numbers["train_seconds"] + r.numbers["inference_seconds"] for r in runs)
    return {
        "last cell finished": date(max(run.ended_at_ms for run in runs)),
        "wall time of all cells": f"{seconds / 3600:.2f} hours",
    }


def cells_section(titles: Mapping[str, str], found: Mapping[str, CellRun]) -> Section:
    """Return every cell with its run; the titles go by cell id."""
    lines = [["cell", "id", "state", "stages", "E %", "run", "reason"]]
    failed = []
    for cell_id, title in titles.items():
        run = found.get(cell_id)
        if run is None:
            lines.append([title, cell_id, "missing", "0", "", "", ""])
            continue
        end = f"{100 * run.numbers['E']:.1f}" if "E" in run.numbers else ""
        line = [title, cell_id, run.status.lower(), str(run.stage), end, run.run_id]
        lines.append([*line, run.error])
        if run.status == "FAILED":
            failed.append(lines[-1])
    body = ""
    if failed:
        body += page.table([lines[0], *failed], caption="Failed cells", words=3, long=6)
    every = page.table(lines, caption="Every cell", words=3, long=6)
    done = sum(run.is_finished for run in found.values())
    body += page.folded(f"{done} of {len(titles)} cells are finished", every)
    return Section("cells", "Cells", body)


def date(ms: int) -> str:
    """Return a time as MLflow counts it, for people."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
