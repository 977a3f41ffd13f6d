"""Bring the cells of an export into a store: finished runs with all their numbers and no files."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from oclgrid.platform.claims import Claimant
from oclgrid.platform.export import MEASURED, TRACED, Row, is_analysis, rows_of, spec_of
from oclgrid.platform.results import COPIED_FROM, LIVE, LIVE_BATCHES
from oclgrid.platform.store import Store
from oclgrid.platform.store_copy import COPYING, Copied, CopyError
from oclgrid.trainables.cell import ElsewhereError
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec


def import_rows(
    rows: Mapping[str, Row],
    target: Store,
    claimant: Claimant,
    tell: Callable[[int, int, str], None],
) -> Copied:
    """Make a finished run of each row whose cell is not finished there.

    Whoever analyses such a cell, or classifies its network otherwise, trains it again: an export
    has no checkpoints.

    Args:
        rows: Of an export, by cell id.
        target: Where to.
        claimant: Keeps others from the cells that are replaced; holds off who would create runs.
        tell: Told of the number of rows looked at, of all of them, and of the cell.
    """
    done, cells = Copied(), dict[str, CellSpec]()
    for cell_id, row in rows.items():
        try:
            cells[cell_id] = _checked(row)
        except SpecError as error:
            done.refused[cell_id] = str(error)
    known = target.cells(cells.values())
    for number, (cell_id, spec) in enumerate(cells.items(), 1):
        tell(number, len(cells), spec.title)
        there = known.get(cell_id)
        if there is not None and there.is_finished:
            done.present += 1
            continue
        if there is not None:  # somebody may be training it
            try:
                claimant.claim(target, cell_id)
            except ElsewhereError as error:
                done.busy[spec.title] = str(error)
                continue
            target.delete(there.run_id)
        _make(rows[cell_id], spec, target)
        done.copied += 1
    return done


def _checked(row: Row) -> CellSpec:
    """Return the cell of a row; refuse one that cannot be what a finished cell gave."""
    spec = spec_of(row)
    stages, told = dataset(spec.dataset).stages, row.get("stage_accuracies")
    if not (isinstance(told, list) and len(told) == stages and told[-1] == row.get("E")):
        raise SpecError(f"it has no accuracy for each of {stages} stages that ends with its E")
    numbers = [*told, *(row.get(name) for name in MEASURED)]
    if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        raise SpecError(f"it lacks one of {', '.join(MEASURED)}")
    if not isinstance(row.get("run_id"), str) or not isinstance(row.get("finished_at_ms"), int):
        raise SpecError("it does not say which run it is of, and when that ended")
    try:
        list(_points(row))
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"its numbers cannot be read ({error})") from error
    return spec


def _make(row: Row, spec: CellSpec, target: Store) -> None:
    """Write the run of a row, compare what can be read of it, and only then close it."""
    tags = {k: str(v) for k, v in row.items() if k.startswith(TRACED) or k in ("commit", "sweep")}
    ended = row["finished_at_ms"]
    took = int(1000 * (row["train_seconds"] + row["inference_seconds"]))
    run_id = target.create_cell(
        spec, tags={**tags, COPIED_FROM: row["run_id"], COPYING: "true"}, started_at_ms=ended - took
    )
    target.log_points(run_id, _points(row), at=ended)
    written = rows_of([(spec, target.cells([spec])[spec.cell_id])], target, sweep="")
    made = {**written[spec.cell_id], "finished_at_ms": ended}
    if differing := sorted(k for k in made.keys() | row.keys() if not _same(made, row, k)):
        raise CopyError(
            f"{', '.join(differing)} of {spec.title} differ from the export; copy "
            f"again, or with the version of oclgrid that made it"
        )
    target.remove_tag(run_id, COPYING)
    target.client.set_terminated(run_id, "FINISHED", ended)


def _points(row: Row) -> Iterator[tuple[str, int, float]]:
    """Yield what was measured, at the stage or batch it is of."""
    last = len(row["stage_accuracies"])
    for stage, accuracy in enumerate(row["stage_accuracies"], 1):
        yield "E", stage, accuracy
    yield "stage", last, float(last)
    for name, value in row.items():
        if name != "E" and (name in MEASURED or is_analysis(name)):
            yield name, last, float(value)
        elif name.startswith(LIVE):
            yield from ((name, int(b), v) for b, v in zip(row[LIVE_BATCHES], value, strict=True))


def _same(one: Row, other: Row, name: str) -> bool:
    """Return whether a field is equal in two rows; NaN is equal to itself."""
    return repr(_plain(one.get(name))) == repr(_plain(other.get(name)))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [float(v) for v in value]
    return float(value) if isinstance(value, int) else value
