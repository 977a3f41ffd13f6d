"""The durable store: cells, groups and sweeps as MLflow runs, found by their tags."""

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from oclgrid.platform.reading import EXPERIMENT, NEWEST, read_artifact
from oclgrid.platform.results import (
    LIVE,
    PARENT,
    CellRun,
    Live,
    StageTime,
    SweepRun,
    flatten,
    live_of,
)
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import class_sequence

NOTE = "mlflow.note.content"
"""Tag that the UI shows as a run's description."""
EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",
    NOTE: "Sweeps hold groups (mean over class orders), groups hold cells. "
    "E: end accuracy, A: average accuracy, F: forgetting, beta: balance; step = stage.",
}
PAGE = 1000
METRIC_BATCH = 1000
"""As many as a request may log."""
T = TypeVar("T")
FEW_GROUPS = 100
"""Groups of one dataset and method that are asked for one by one: 0.04 s each, against 0.002 s for
every run of that dataset and method there is."""

ASKED_AT_ONCE = 8
"""Queries: 93 of them among 10,020 runs in PostgreSQL take 0.4 of the time they take in turn."""


class Store:
    """An MLflow tracking store, reached through a server or, to look only, its database file."""

    def __init__(self, uri: str, *, folder: Path | None = None) -> None:
        self.uri, self._folder = uri, folder
        try:
            self.client = MlflowClient(uri)
            found = self.client.get_experiment_by_name(EXPERIMENT)
            if found is not None and found.lifecycle_stage == "deleted":
                raise SpecError(
                    f"the experiment {EXPERIMENT!r} in {uri} was deleted; bring it back with "
                    f"`mlflow experiments restore -x {found.experiment_id}` or use another --store"
                )
            self._experiment = found.experiment_id if found else None
        except (MlflowException, SQLAlchemyError, ValueError) as error:
            if isinstance(error, SpecError):
                raise
            reason = f"cannot open the store at {uri}; check --store: {one_line(error)}"
            raise SpecError(reason) from error

    @property
    def experiment_id(self) -> str | None:
        """Id of the experiment that holds all our runs, if there is one."""
        return self._experiment

    @property
    def experiment(self) -> str:
        """Id of the experiment that holds all our runs; made when first needed."""
        if self._experiment is None:
            try:
                made = self.client.create_experiment(EXPERIMENT, tags=EXPERIMENT_TAGS)
            except MlflowException:
                found = self.client.get_experiment_by_name(EXPERIMENT)
                if found is None:
                    raise
                made = found.experiment_id  # another command was quicker
            self._experiment = str(made)
        return self._experiment

    def cells(self, specs: Iterable[CellSpec]) -> dict[str, CellRun]:
        """Return what is known of these cells, by cell id; unknown ones are left out.

        One query per dataset and method, or per group of class orders where there are few.
        MLflow's filters know neither OR nor, for tags, IN.
        """
        wanted: dict[tuple[str, str, str], dict[str, set[str]]] = {}
        for spec in specs:
            kind = (spec.dataset, spec.method.name, spec.protocol)
            wanted.setdefault(kind, defaultdict(set))[spec.group_id].add(spec.cell_id)
        found: dict[str, CellRun] = {}
        for (place, method, protocol), groups in wanted.items():
            queries = [{"group_id": group} for group in groups]
            if len(groups) > FEW_GROUPS:
                queries = [{"dataset": place, "method": method, "protocol": protocol}]
            cell_ids = set.union(*groups.values())
            for run in self._all_tagged(queries):
                cell_id = run.data.tags["cell_id"]
                known = found.get(cell_id)
                if cell_id in cell_ids and (known is None or not known.is_finished):
                    found[cell_id] = _cell_run(run)
        return found

    def _all_tagged(self, queries: list[dict[str, str]]) -> Iterator[Run]:
        """Yield the cells that each query finds; several are asked at once."""
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            for runs in pool.map(lambda q: list(self.tagged_runs(kind="cell", **q)), queries):
                yield from runs

    def donors(self, specs: Iterable[CellSpec]) -> dict[str, str]:
        """Return, by training id, the run of a finished cell that trained the same network."""
        found: dict[str, str] = {}
        groups = {spec.training_group_id: spec for spec in specs}
        for group, spec in groups.items():
            for run in self.tagged_runs(kind="cell", training_group=group):
                if run.info.status == "FINISHED":
                    order = int(run.data.tags["order"])
                    found[replace(spec, class_order=order).training_id] = str(run.info.run_id)
        return found

    def create_cell(
        self,
        spec: CellSpec,
        *,
        tags: dict[str, str],
        parent: str = "",
        started_at_ms: int | None = None,
    ) -> str:
        """Create the run of a cell that has none; return its id."""
        own = {
            "kind": "cell",
            "cell_id": spec.cell_id,
            "group_id": spec.group_id,
            "training_group": spec.training_group_id,
            "dataset": spec.dataset,
            "memory": str(spec.memory_size),
            "order": str(spec.class_order),
            "method": spec.method.name,
            "protocol": spec.protocol,
            "data_digest": spec.data_digest,
            **({PARENT: parent} if parent else {}),
        }
        run_id = self.create(spec.title, {**tags, **own}, started_at_ms)
        self.describe_cell(run_id, spec)
        return run_id

    def describe_cell(self, run_id: str, spec: CellSpec) -> None:
        """Log the parameters of a cell; doing so again changes nothing."""
        params = flatten(spec.resolved)
        classes = dataset(spec.dataset).classes
        sequence = class_sequence(classes, spec.class_order, spec.arrival)
        params["class_sequence"] = json.dumps(sequence)
        values = [Param(k, str(v)) for k, v in params.items()]
        self.client.log_batch(run_id, params=values)

    def stage_accuracies(self, run_ids: Iterable[str]) -> dict[str, list[float]]:
        """Return the accuracy after each finished stage, by run id."""
        found = {}
        for run_id in run_ids:
            points = self.client.get_metric_history(run_id, "E")
            found[run_id] = [m.value for m in sorted(points, key=lambda m: int(m.step))]
        return found

    def live(self, run_ids: Iterable[str]) -> dict[str, Live]:
        """Return what was told during training, by run id."""
        found = {}
        for run_id in run_ids:
            names = [n for n in self.client.get_run(run_id).data.metrics if n.startswith(LIVE)]
            points = [p for n in names for p in self.client.get_metric_history(run_id, n)]
            points.sort(key=lambda m: int(m.timestamp))
            found[run_id] = live_of((m.key, int(m.step), m.value) for m in points)
        return found

    def stage_times(self, place: str, method: str) -> list[StageTime]:
        """Return the times of the newest finished cells on a dataset by a method."""
        if self._experiment is None:
            return []
        runs = self.client.search_runs(
            [self._experiment],
            f"tags.kind = 'cell' and tags.dataset = '{place}' and tags.method = '{method}' "
            f"and attributes.status = 'FINISHED'",
            max_results=NEWEST,
            order_by=["attributes.start_time DESC"],
        )
        fractions = [float(run.data.params["stream_fraction"]) for run in runs]
        cells = map(_cell_run, runs)
        return [StageTime.of(c, f) for c, f in zip(cells, fractions, strict=True) if c.stage]

    def sweep(self, name: str) -> SweepRun | None:
        """Return the run of a sweep, if it has one."""
        return self._own_run(kind="sweep", sweep=name)

    def search(self, study: str) -> SweepRun | None:
        """Return the run of the search with that study, if it has one."""
        return self._own_run(kind="search", study=study)

    def _own_run(self, **tags: str) -> SweepRun | None:
        for run in self.tagged_runs(**tags):
            return SweepRun(
                run_id=str(run.info.run_id),
                status=str(run.info.status),
                tags=dict(run.data.tags),
                started_at_ms=int(run.info.start_time or 0),
                ended_at_ms=int(run.info.end_time or 0),
            )
        return None

    def artifact(self, run_id: str, path: str) -> bytes | None:
        """Return a file of a run, if it is there."""
        if self._folder is not None:
            return read_artifact(self._folder, self.experiment, run_id, path)
        with TemporaryDirectory() as folder:
            try:
                return Path(self.client.download_artifacts(run_id, path, folder)).read_bytes()
            except (MlflowException, OSError):
                return None

    def find_or_create(self, name: str, *, parent: str | None = None, **tags: str) -> str:
        """Return the run that has these tags, created below ``parent`` if there is none."""
        for run in self.tagged_runs(**tags):
            return str(run.info.run_id)
        if parent is not None:
            tags[PARENT] = parent
        run = self.client.create_run(self.experiment, run_name=name, tags=tags)
        return str(run.info.run_id)

    def create(self, name: str, tags: dict[str, str], started_at_ms: int | None = None) -> str:
        """Create a run that begins now, unless told otherwise; return its id."""
        made = self.client.create_run(self.experiment, started_at_ms, tags, run_name=name)
        return str(made.info.run_id)

    def delete(self, run_id: str) -> None:
        """Delete a run: it is not found any more and takes no more tags."""
        self.client.delete_run(run_id)

    def tagged(self, **tags: str) -> dict[str, dict[str, str]]:
        """Return all tags of the runs that have these, by run id."""
        return {str(run.info.run_id): dict(run.data.tags) for run in self.tagged_runs(**tags)}

    def active_tags(self, run_id: str) -> dict[str, str] | None:
        """Return the tags of a run; None if it was deleted."""
        run = self.client.get_run(run_id)
        return dict(run.data.tags) if run.info.lifecycle_stage == "active" else None

    def remove_tag(self, run_id: str, key: str) -> None:
        """Take a tag off a run, if both are there."""
        try:
            self.client.delete_tag(run_id, key)
        except MlflowException as error:
            if not is_final(error):
                raise

    def log_numbers(self, run_id: str, numbers: dict[str, float], *, step: int, at: int) -> None:
        """Log metrics under a given time, so that doing it again changes nothing."""
        self.log_points(run_id, ((name, step, value) for name, value in numbers.items()), at=at)

    def log_points(self, run_id: str, points: Iterable[tuple[str, int, float]], *, at: int) -> None:
        """Log (name, step, value) of metrics likewise; what is not finite is left out."""
        entries = [Metric(name, v, at, step) for name, step, v in points if math.isfinite(v)]
        for some in batches(entries, METRIC_BATCH):
            self.client.log_batch(run_id, metrics=some)

    def unset_numbers(self, run_id: str, names: Iterable[str], *, step: int, at: int) -> None:
        """Let metrics have no number from a given time on; MLflow cannot delete them."""
        self.client.log_batch(run_id, metrics=[Metric(n, math.nan, at, step) for n in names])

    def set_tags(self, run_id: str, tags: dict[str, str]) -> None:
        """Set tags of a run."""
        self.client.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items()])

    def describe(self, run_id: str, text: str) -> None:
        """Set what the UI shows as a run's description."""
        self.client.set_tag(run_id, NOTE, text[:5000])

    def set_status(self, run_id: str, status: str) -> None:
        """Set the status of a run: RUNNING, FINISHED, FAILED or KILLED."""
        if status == "RUNNING":
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status)

    def tagged_runs(self, **tags: str) -> Iterator[Run]:
        """Yield the runs with all these tags, oldest first."""
        if self._experiment is None:
            return
        query = " and ".join(f"tags.`{k}` = '{v}'" for k, v in tags.items())
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [self._experiment],
                query,
                max_results=PAGE,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            yield from page
            token = page.token
            if not token:
                return


def _cell_run(run: Run) -> CellRun:
    numbers = {k: v for k, v in run.data.metrics.items() if not math.isnan(v)}
    return CellRun(
        run_id=str(run.info.run_id),
        status=str(run.info.status),
        stage=int(numbers.get("stage", 0)),
        numbers=numbers,
        error=run.data.tags.get("error", ""),
        ended_at_ms=int(run.info.end_time or 0),
        tags=dict(run.data.tags),
    )


def batches(items: list[T], size: int) -> Iterator[list[T]]:
    """Yield parts of a list that a request can hold."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def is_final(error: MlflowException) -> bool:
    """Return whether asking again would not help: what was asked for is gone, or refused.

    BAD_REQUEST is what a server says that ran out of connections to its database.
    """
    return error.get_http_status_code() in (400, 404) and error.error_code != "BAD_REQUEST"


def one_line(error: Exception) -> str:
    """Return what matters of a long error: of a chain of causes the first."""
    text = " ".join(str(error).split())
    return text.rpartition("(Caused by ")[2][:150]


def now_ms() -> int:
    """Return the time as MLflow counts it."""
    return time.time_ns() // 1_000_000
