"""Read a store in a folder from its own files, read-only; importing MLflow alone takes seconds.

What is read of the database, and of which version of it, is all in this file. A database of
another version is left to MLflow.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oclgrid.platform.location import Location
from oclgrid.platform.results import (
    LIVE,
    CellRun,
    Live,
    StageTime,
    SweepRun,
    TimedSource,
    live_of,
)
from oclgrid.trainables.spec import CellSpec

EXPERIMENT = "oclgrid"
"""The MLflow experiment that holds all our runs."""
KNOWN_SCHEMAS = {"dc11669786a5"}
"""Alembic versions of MLflow's database whose tables are as read here: MLflow 3.17."""
NEWEST = 20
"""Finished cells that times are taken from."""
AMONG = "run_uuid IN (SELECT value FROM json_each(?))"


class _OtherSchemaError(Exception):
    """The database is not one that can be read here."""


def open_source(location: Location) -> TimedSource:
    """Return the store for looking only, by the quickest way there is."""
    if location.folder is not None:
        try:
            return Folder(location.folder)
        except (_OtherSchemaError, sqlite3.Error):
            pass  # MLflow opens it, or says what is wrong with it
    from oclgrid.platform.store import Store

    return Store(location.reading_uri, folder=location.folder)


class Folder:
    """An embedded store, read from its SQLite file and its artifact folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        name = quote(str((folder / "mlflow.db").resolve()))
        self._base = sqlite3.connect(f"file:{name}?mode=ro", uri=True, timeout=30)
        versions = {v for (v,) in self._base.execute("SELECT version_num FROM alembic_version")}
        if not versions <= KNOWN_SCHEMAS:
            raise _OtherSchemaError(versions)
        found = self._base.execute(
            "SELECT experiment_id, lifecycle_stage FROM experiments WHERE name = ?", [EXPERIMENT]
        ).fetchone()
        if found is not None and found[1] != "active":
            raise _OtherSchemaError("the experiment was deleted")
        self._experiment = None if found is None else found[0]

    @property
    def experiment_id(self) -> str | None:
        """Id of the experiment that holds all our runs, if there is one."""
        return None if self._experiment is None else str(self._experiment)

    def cells(self, specs: Iterable[CellSpec]) -> dict[str, CellRun]:
        """Return what is known of these cells, by cell id; unknown ones are left out."""
        wanted = {spec.cell_id for spec in specs}
        chosen: dict[str, tuple[Any, ...]] = {}
        # A status is read before the numbers: those of a finished run were written before it.
        for cell_id, run in self._runs("cell_id"):
            if cell_id in wanted and (cell_id not in chosen or chosen[cell_id][1] != "FINISHED"):
                chosen[cell_id] = run
        return self._cell_runs(chosen)

    def _cell_runs(self, chosen: dict[str, tuple[Any, ...]]) -> dict[str, CellRun]:
        run_ids = [run[0] for run in chosen.values()]
        tags = self._by_run("tags", run_ids)
        numbers = self._by_run("latest_metrics", run_ids, where="NOT is_nan AND")
        return {
            cell_id: CellRun(
                run_id=run_id,
                status=status,
                stage=int(numbers[run_id].get("stage", 0)),
                numbers=numbers[run_id],
                error=tags[run_id].get("error", ""),
                ended_at_ms=ended or 0,
                tags=tags[run_id],
            )
            for cell_id, (run_id, status, _, ended) in chosen.items()
            if tags[run_id].get("kind") == "cell"
        }

    def stage_times(self, place: str, method: str) -> list[StageTime]:
        """Return the times of the newest finished cells on a dataset by a method."""
        query = """
            SELECT run_uuid, status, start_time, end_time
            FROM runs JOIN tags AS d USING (run_uuid) JOIN tags AS m USING (run_uuid)
            WHERE d.key = 'dataset' AND d.value = ? AND m.key = 'method' AND m.value = ?
            AND experiment_id = ? AND status = 'FINISHED' AND lifecycle_stage = 'active'
            ORDER BY start_time DESC LIMIT ?
        """
        asked = (place, method, self._experiment, NEWEST)
        runs = self._cell_runs({row[0]: row for row in self._base.execute(query, asked)})
        params = self._by_run("params", list(runs), where="key = 'stream_fraction' AND")
        return [
            StageTime.of(run, float(params[run_id]["stream_fraction"]))
            for run_id, run in runs.items()
            if run.stage
        ]

    def stage_accuracies(self, run_ids: Iterable[str]) -> dict[str, list[float]]:
        """Return the accuracy after each finished stage, by run id."""
        found: dict[str, list[float]] = defaultdict(list)
        query = f"SELECT run_uuid, value FROM metrics WHERE key = 'E' AND {AMONG} ORDER BY step"
        for run_id, value in self._base.execute(query, [json.dumps(list(run_ids))]):
            found[run_id].append(value)
        return dict(found)

    def live(self, run_ids: Iterable[str]) -> dict[str, Live]:
        """Return what was told during training, by run id."""
        found: dict[str, list[tuple[str, int, float]]] = {run_id: [] for run_id in run_ids}
        query = f"""
            SELECT run_uuid, key, step, value FROM metrics
            WHERE key LIKE '{LIVE}%' AND {AMONG} ORDER BY timestamp
        """
        for run_id, name, batch, value in self._base.execute(query, [json.dumps(list(found))]):
            found[run_id].append((name, batch, value))
        return {run_id: live_of(points) for run_id, points in found.items()}

    def sweep(self, name: str) -> SweepRun | None:
        """Return the run of a sweep, if it has one."""
        return self._own_run("sweep", sweep=name)

    def search(self, study: str) -> SweepRun | None:
        """Return the run of the search with that study, if it has one."""
        return self._own_run("search", study=study)

    def _own_run(self, kind: str, **wanted: str) -> SweepRun | None:
        for found, (run_id, status, started, ended) in self._runs("kind"):
            if found != kind:
                continue
            tags = self._by_run("tags", [run_id])[run_id]
            if wanted.items() <= tags.items():
                return SweepRun(
                    run_id=run_id,
                    status=status,
                    tags=tags,
                    started_at_ms=started or 0,
                    ended_at_ms=ended or 0,
                )
        return None

    def artifact(self, run_id: str, path: str) -> bytes | None:
        """Return a file of a run, if it is there."""
        return read_artifact(self._folder, str(self._experiment), run_id, path)

    def _runs(self, tag: str) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the value of a tag and the run of each run that has it, oldest first."""
        query = """
            SELECT value, run_uuid, status, start_time, end_time
            FROM tags JOIN runs USING (run_uuid)
            WHERE key = ? AND experiment_id = ? AND lifecycle_stage = 'active'
            ORDER BY start_time, run_uuid
        """
        return [(row[0], row[1:]) for row in self._base.execute(query, [tag, self._experiment])]

    def _by_run(
        self, table: str, run_ids: list[str], *, where: str = ""
    ) -> dict[str, dict[str, Any]]:
        """Return keys and values of a table, by run id."""
        found: dict[str, dict[str, Any]] = {run_id: {} for run_id in run_ids}
        query = f"SELECT run_uuid, key, value FROM {table} WHERE {where} {AMONG}"
        for run_id, key, value in self._base.execute(query, [json.dumps(run_ids)]):
            found[run_id][key] = value
        return found


def read_artifact(folder: Path, experiment: str, run_id: str, path: str) -> bytes | None:
    """Return a file of a run from the folder of an embedded store, if it is there."""
    try:
        return (folder / "artifacts" / experiment / run_id / "artifacts" / path).read_bytes()
    except OSError:
        return None
