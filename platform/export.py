"""Finished cells as rows of a Parquet file, merged by cell id: the origin of numbers in print."""

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oclgrid.platform.results import (
    COPIED_FROM,
    LIVE,
    LIVE_BATCHES,
    NUMBERS,
    CellRun,
    Live,
    Source,
    SweepRun,
    flatten,
)
from oclgrid.search_spaces.sweep import Sweep
from oclgrid.trainables.registry import find
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec

CELLS = "cells.parquet"
SECONDS = ("train_seconds", "inference_seconds")
MEASURED = (*NUMBERS, *SECONDS, "trained_images")
IDENTITY = ("cell_id", "group_id", "sweep", "dataset", "data_digest", "memory", "order", "seed",
            "method", "protocol", "stream_fraction", "arrival", "spec_version")  # fmt: skip
ORIGIN = ("commit", "run_id", "finished_at_ms")
SETTING = "method."
"""Prefix of a method's settings."""
TRACED = ("version.", "hardware.", "analysis.")
"""Prefixes of the tags that go with a row."""
Row = dict[str, Any]


class Export:
    """Cells read from an exported file instead of a store."""

    experiment_id: str | None = None

    def __init__(self, path: Path) -> None:
        self._rows = read_rows(path)
        self._by_run = {row["run_id"]: row for row in self._rows.values()}

    def cells(self, specs: Iterable[CellSpec]) -> dict[str, CellRun]:
        """Return what is known of these cells, by cell id; unknown ones are left out."""
        wanted = {spec.cell_id for spec in specs}
        return {c: _cell_run(row) for c, row in self._rows.items() if c in wanted}

    def stage_accuracies(self, run_ids: Iterable[str]) -> dict[str, list[float]]:
        """Return the accuracy after each finished stage, by run id."""
        return {r: self._by_run[r]["stage_accuracies"] for r in run_ids if r in self._by_run}

    def live(self, run_ids: Iterable[str]) -> dict[str, Live]:
        """Return what was told during training, by run id."""
        rows = {run_id: self._by_run[run_id] for run_id in run_ids if run_id in self._by_run}
        return {r: {k: v for k, v in row.items() if _is_live(k)} for r, row in rows.items()}

    def sweep(self, name: str) -> SweepRun | None:
        """Return None: an export holds cells only."""
        del name
        return None

    def search(self, study: str) -> SweepRun | None:
        """Return None: an export holds cells only."""
        del study
        return None

    def artifact(self, run_id: str, path: str) -> bytes | None:
        """Return None: an export holds no files."""
        del run_id, path
        return None


def export_cells(sweep: Sweep, source: Source, folder: Path) -> int:
    """Merge the finished cells of a sweep into the folder's file; return how many there were.

    A row is replaced by a newer result of the same cell and never lost: the file is written
    aside and put in place at once, by one process at a time. Analyses that only the older result
    has are kept where both came to the same numbers.
    """
    found = {c: run for c, run in source.cells(sweep.cells).items() if run.is_finished}
    chosen = [(spec, found[spec.cell_id]) for spec in sweep.cells if spec.cell_id in found]
    rows = rows_of(chosen, source, sweep=sweep.name)
    try:
        with _locked(folder):
            path = folder / CELLS
            known = read_rows(path) if path.exists() else {}
            _write(known | {c: _merged(known.get(c, {}), row) for c, row in rows.items()}, path)
    except OSError as error:
        raise SpecError(
            f"cannot write to {folder} ({error.strerror}); choose another with --to"
        ) from error
    return len(rows)


def rows_of(
    cells: Iterable[tuple[CellSpec, CellRun]], source: Source, *, sweep: str
) -> dict[str, Row]:
    """Return everything known of cells by cell id; ``sweep`` is of runs that name none."""
    cells = list(cells)
    run_ids = [run.run_id for _, run in cells]
    stages, live = source.stage_accuracies(run_ids), source.live(run_ids)
    return {
        spec.cell_id: _row(spec, run, stages, sweep) | live.get(run.run_id, {})
        for spec, run in cells
    }


def spec_of(row: Row) -> CellSpec:
    """Return the cell that a row is of; refuse one whose settings give another name."""
    try:
        settings = _nested(
            {k.removeprefix(SETTING): v for k, v in row.items() if k.startswith(SETTING)}
        )
        spec = CellSpec(
            memory_size=row["memory"],
            class_order=row["order"],
            method=find(row["method"]).config(name=row["method"], **settings),
            arrival=row.get("arrival", "drawn"),
            **{
                k: row[k] for k in ("dataset", "data_digest", "seed", "protocol", "stream_fraction")
            },
        )
    except (AttributeError, KeyError, TypeError) as error:  # fields that a cell has not, or lacks
        raise SpecError(f"it is not a cell of this version of oclgrid ({error})") from error
    if spec.cell_id != row["cell_id"]:
        raise SpecError(f"by its settings it is another cell, {spec.cell_id}")
    return spec


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Return fields under dotted names as they were before they were flattened."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, field = name.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[field] = value
    return tree


def _row(spec: CellSpec, run: CellRun, stages: dict[str, list[float]], sweep: str) -> Row:
    """Return everything known of a finished cell under one name each."""
    resolved = spec.resolved
    method = resolved.pop("method")
    row: Row = {
        "cell_id": spec.cell_id,
        "group_id": spec.group_id,
        "sweep": run.tags.get("sweep", sweep),
        "memory": resolved.pop("memory_size"),
        "order": resolved.pop("class_order"),
        "method": method.pop("name"),
        **resolved,
        **flatten(method, SETTING),
        **{k: v for k, v in run.numbers.items() if k in MEASURED or is_analysis(k)},
        "stage_accuracies": stages.get(run.run_id, []),
        **{k: v for k, v in run.tags.items() if k.startswith(TRACED)},
        "commit": run.tags.get("commit"),
        "run_id": run.tags.get(COPIED_FROM, run.run_id),
        "finished_at_ms": run.ended_at_ms,
    }
    return {k: v for k, v in row.items() if v is not None}


def is_analysis(name: str) -> bool:
    """Whether a metric is the number of an analysis, such as ``cka/seen``."""
    return "/" in name and not name.startswith((LIVE, "system/"))


def _is_live(name: str) -> bool:
    return name == LIVE_BATCHES or name.startswith(LIVE)


def _cell_run(row: Row) -> CellRun:
    tags = {k: v for k, v in row.items() if k.startswith(TRACED) or k in ("commit", "sweep")}
    numbers = {k: float(v) for k, v in row.items() if k in MEASURED or is_analysis(k)}
    return CellRun(
        run_id=row["run_id"],
        status="FINISHED",
        stage=len(row["stage_accuracies"]),
        numbers=numbers,
        error="",
        ended_at_ms=row["finished_at_ms"],
        tags=tags,
    )


def read_rows(path: Path) -> dict[str, Row]:
    """Return the rows of a file by cell id, without their empty fields."""
    if not path.is_file():
        raise SpecError(f"there is no export at {path}; `oclgrid export` makes one")
    try:
        rows = pq.read_table(path, partitioning=None).to_pylist()
        return {r["cell_id"]: {k: v for k, v in r.items() if v is not None} for r in rows}
    except (pa.ArrowException, OSError, KeyError) as error:
        reason = " ".join(str(error).split())[:150]
        raise SpecError(
            f"cannot read {path} ({reason}); bring it back from where you keep it, or move it away"
        ) from error


def _merged(old: Row, new: Row) -> Row:
    """Return the newer row of a cell, with what the older one alone tells of the same numbers."""
    return old | new if old.get("stage_accuracies") == new["stage_accuracies"] else new


def _write(rows: dict[str, Row], path: Path) -> None:
    """Write rows and columns in an order of their own, so that equal content is equal bytes."""
    ordered = sorted(rows.values(), key=_place)
    names = _columns({name for row in ordered for name in row})
    columns = {name: _column([row.get(name) for row in ordered]) for name in names}
    handle, aside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    os.close(handle)
    try:
        pq.write_table(pa.table(columns), aside, compression="zstd")
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[k] for k in ("dataset", "protocol", "stream_fraction", "memory", "method",
                                  "group_id", "order", "cell_id"))  # fmt: skip


def _columns(names: set[str]) -> list[str]:
    """Return the columns: what a cell is, its settings, its numbers, where they come from."""
    first, last = [*IDENTITY], [*MEASURED, "stage_accuracies"]
    settings = sorted(n for n in names if n.startswith(SETTING))
    analyses = sorted(filter(is_analysis, names))
    live = sorted(filter(_is_live, names))
    traced = sorted(n for n in names if n.startswith(TRACED))
    known = [*first, *settings, *last, *analyses, *live, *traced, *ORIGIN]
    return [n for n in known if n in names] + sorted(names - set(known))


def _column(values: list[Any]) -> pa.Array:
    """Return a column of one type: where whole and other numbers meet it is that of the latter."""
    kinds = {type(v) for v in values if v is not None}
    if kinds == {int, float}:
        values = [None if v is None else float(v) for v in values]
    elif len(kinds) > 1:
        values = [None if v is None else str(v) for v in values]
    return pa.array(values, type=pa.list_(pa.float64()) if kinds == {list} else None)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder, made if need be, against another export."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
