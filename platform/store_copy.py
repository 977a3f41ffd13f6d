"""Copy a store into another: every run once, and each compared with its origin afterwards."""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mlflow.entities import Metric, Param, Run, RunTag

from oclgrid.platform.claims import KIND, Claimant, claims_of
from oclgrid.platform.results import COPIED_FROM, PARENT
from oclgrid.platform.store import METRIC_BATCH, Store, batches
from oclgrid.trainables.cell import ElsewhereError

KINDS = {
    "sweep": ("sweep",),
    "search": ("study",),
    "group": ("sweep", "group_id"),
    "cell": ("cell_id",),
}
"""What identifies a run of each kind; parents come before their children."""
COPYING = "copying"
"""Tag of a copy that is not whole yet."""
BATCH = 100
Key = tuple[str, ...]


class CopyError(Exception):
    """A copy is not what it was copied from."""


@dataclass(slots=True)
class Copied:
    """What became of the runs of a store."""

    copied: int = 0
    present: int = 0
    """There already, from an earlier copy or by their own."""
    busy: dict[str, str] = field(default_factory=dict)
    """Who works on a cell that was left out, by its name."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why a row of an export was left out, by cell id."""


def copy_store(
    source: Store, target: Store, claimant: Claimant, tell: Callable[[int, int, str], None]
) -> Copied:
    """Copy what the target lacks; a copy that was cut short is made whole.

    A finished cell replaces an unfinished one, never the other way round.

    Args:
        source: Is only read.
        target: Where to.
        claimant: Keeps others from the cells that are replaced; holds off who would create runs.
        tell: Told of the number of runs looked at, of all of them, and of the name of the last.
    """
    origins, there = _runs(source), _runs(target)
    done, parents = Copied(), dict[str, str]()
    busy = claims_of(source.tagged(kind=KIND))
    for number, (key, run) in enumerate(origins.items(), 1):
        tell(number, len(origins), run.info.run_name)
        known = there.get(key)
        try:
            if who := busy.get(key[-1]):
                raise ElsewhereError(who)
            if known is not None and _is_cell(known) and _is_outdated(known, run):
                claimant.claim(target, key[1])
        except ElsewhereError as error:
            done.busy[run.info.run_name] = str(error)
            continue
        if known is None or _is_outdated(known, run):
            copy = _Copy(source, target, run, parents.get(run.data.tags.get(PARENT, ""), ""))
            parents[run.info.run_id] = copy.make(known)
            done.copied += 1
        else:
            parents[run.info.run_id] = known.info.run_id
            done.present += 1
    _check_cells(source, target, done)
    return done


def _runs(store: Store) -> dict[Key, Run]:
    """Return the run that counts of each sweep, search, group and cell."""
    found: dict[Key, Run] = {}
    for kind, names in KINDS.items():
        for run in store.tagged_runs(kind=kind):
            key = (kind, *(run.data.tags.get(name, "") for name in names))
            if key not in found or found[key].info.status != "FINISHED":
                found[key] = run
    return found


def _is_outdated(copy: Run, origin: Run) -> bool:
    """Return whether a run of the target is to be replaced or brought up to date."""
    tags = copy.data.tags
    if _is_cell(copy) and copy.info.status == "FINISHED":
        return False
    if tags.get(COPIED_FROM) == origin.info.run_id:
        return COPYING in tags or (copy.info.status, copy.info.end_time) != _end(origin)
    return _is_cell(copy) and origin.info.status == "FINISHED"


def _is_cell(run: Run) -> bool:
    return bool(run.data.tags["kind"] == "cell")


def _end(run: Run) -> tuple[str, int]:
    """Return status and end of a run's copy; what nobody works on is not RUNNING there."""
    status = "KILLED" if run.info.status in ("RUNNING", "SCHEDULED") else run.info.status
    return status, int(run.info.end_time or run.info.start_time)


class _Copy:
    """One run on its way into another store."""

    def __init__(self, source: Store, target: Store, run: Run, parent: str) -> None:
        self._source, self._target, self._run = source, target, run
        self._origin = run.info.run_id
        self._tags = {**run.data.tags, COPIED_FROM: self._origin}
        if PARENT in self._tags:
            self._tags[PARENT] = parent

    def make(self, known: Run | None) -> str:
        """Write the copy, compare it, and only then close it; return its id."""
        run_id = self._begin(known)
        with tempfile.TemporaryDirectory() as folder:
            files = _files(self._source, self._origin, Path(folder))
            if files:
                self._target.client.log_artifacts(run_id, folder)
        metrics = _metrics(self._source, self._origin)
        params = [Param(k, v) for k, v in self._run.data.params.items()]
        tags = [RunTag(k, v) for k, v in self._tags.items()]
        for batch in batches(metrics, METRIC_BATCH):
            self._target.client.log_batch(run_id, metrics=batch)
        for some in batches(params, BATCH):
            self._target.client.log_batch(run_id, params=some)
        for few in batches(tags, BATCH):
            self._target.client.log_batch(run_id, tags=few)
        self._compare(run_id, metrics, files)
        self._target.remove_tag(run_id, COPYING)
        status, ended = _end(self._run)
        self._target.client.set_terminated(run_id, status, ended)
        return run_id

    def _begin(self, known: Run | None) -> str:
        if known is not None and not _is_cell(known):  # it may have children
            self._target.set_tags(known.info.run_id, {COPYING: "true"})
            return str(known.info.run_id)
        if known is not None:  # somebody may have trained it further
            self._target.delete(known.info.run_id)
        info = self._run.info
        made = self._target.client.create_run(
            self._target.experiment, info.start_time, {**self._tags, COPYING: "true"}, info.run_name
        )
        return str(made.info.run_id)

    def _compare(self, run_id: str, metrics: list[Metric], files: dict[str, str]) -> None:
        made = self._target.client.get_run(run_id)
        with tempfile.TemporaryDirectory() as folder:
            pairs = {
                "files": (_files(self._target, run_id, Path(folder)), files),
                "metrics": (_points(_metrics(self._target, run_id)), _points(metrics)),
                "params": (made.data.params, self._run.data.params),
                "tags": ({k: made.data.tags.get(k) for k in self._tags}, self._tags),
                "start": (made.info.start_time, self._run.info.start_time),
            }
        for name, (copy, origin) in pairs.items():
            if copy != origin:
                raise CopyError(
                    f"the {name} of {self._run.info.run_name} ({run_id}) differ from those of "
                    f"{self._origin}; copy again"
                )


def _metrics(store: Store, run_id: str) -> list[Metric]:
    names = store.client.get_run(run_id).data.metrics
    return [m for name in names for m in store.client.get_metric_history(run_id, name)]


def _points(metrics: list[Metric]) -> set[tuple[str, str, int, int]]:
    return {(m.key, repr(m.value), m.timestamp, m.step) for m in metrics}


def _files(store: Store, run_id: str, folder: Path) -> dict[str, str]:
    """Fetch the files of a run; return the digest of each by its path."""
    if not store.client.list_artifacts(run_id):
        return {}
    root = Path(store.client.download_artifacts(run_id, "", str(folder)))
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def _check_cells(source: Store, target: Store, done: Copied) -> None:
    """Refuse to call a store copied in which a cell is missing or less finished than it was."""
    there = _runs(target)
    for key, run in _runs(source).items():
        if run.info.run_name in done.busy:
            continue
        copy = there.get(key)
        if copy is None or (run.info.status == "FINISHED" != copy.info.status):
            raise CopyError(f"{run.info.run_name} did not arrive; copy again")
