"""What a store knows of cells, sweeps and searches, as plans, tables and reports see it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from oclgrid.trainables.analysis import Analysis
    from oclgrid.trainables.spec import CellSpec

INTERRUPTED = "interrupted"
"""Why a cell has not finished, where nothing went wrong with it."""
NUMBERS = ("E", "A", "F", "beta")
ANALYSIS = "analysis."
"""Tag that says, before an analysis' name, that it is done: the digest of its settings."""
ANALYSIS_BEGUN = "analysis_begun."
ANALYSIS_ERROR = "analysis_error"
"""Tag that says why analyses failed."""
COPIED_FROM = "copied_from"
"""Tag of a copy: the run it was made from."""
PARENT = "mlflow.parentRunId"
"""Tag that holds the run below which the UI shows one."""
GPU_PEAK = "gpu_peak"
"""Tag that holds the largest part of its GPU's memory that a cell has needed."""
RULE = (
    "within: zero lies in the 95 % Welch interval of (ours - paper's), from both sample standard "
    "deviations, n class orders here and 3 in the paper; outside: it does not."
)
"""What a verdict on E means."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellRun:
    """What the store knows of a cell."""

    run_id: str
    status: str
    stage: int
    """Finished stages."""
    numbers: Mapping[str, float]
    """Latest value of each stage metric."""
    error: str
    ended_at_ms: int
    tags: Mapping[str, str] = field(default_factory=dict)
    """Provenance, and which analyses are there."""

    def has(self, analysis: "Analysis") -> bool:
        """Return whether an analysis is done, with the settings it has now."""
        return self.tags.get(ANALYSIS + analysis.name) == analysis.digest

    @property
    def is_finished(self) -> bool:
        """Whether all stages are done and filed."""
        return self.status == "FINISHED"


@dataclass(frozen=True, slots=True)
class StageTime:
    """Mean seconds of a stage of a cell, and the memory it took."""

    train: float
    """If the whole stream arrived."""
    inference: float
    gpu_peak: float = 0.0
    """The largest part of its GPU's memory that the cell has needed; 0 where it had none."""

    @classmethod
    def of(cls, run: CellRun, fraction: float) -> "StageTime":
        """Return the time of a run to which this share of the stream arrived."""
        train, inference = run.numbers["train_seconds"], run.numbers["inference_seconds"]
        peak = float(run.tags.get(GPU_PEAK, 0.0))
        return cls(train / run.stage / fraction, inference / run.stage, peak)


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepRun:
    """What the store knows of a sweep, or of a search."""

    run_id: str
    status: str
    tags: Mapping[str, str]
    started_at_ms: int
    ended_at_ms: int


LIVE, LIVE_BATCHES = "live/", "live_batches"
Live = dict[str, list[float]]
"""What was told of a cell while it trained: ``live/NAME``, and at which of its batches each."""


def live_of(points: Iterable[tuple[str, int, float]]) -> Live:
    """Return points of (name, batch, value), oldest first, as lists of equal length.

    A stage that was begun twice tells of its batches twice: the last word counts.
    """
    by_batch: dict[int, dict[str, float]] = {}
    for name, batch, value in points:
        by_batch.setdefault(batch, {})[name] = value
    told = sorted(by_batch.items())
    names = sorted({name for _, values in told for name in values})
    columns = {n: [float(f"{v.get(n, math.nan):.5g}") for _, v in told] for n in names}
    return {LIVE_BATCHES: [float(batch) for batch, _ in told], **columns} if told else {}


class Source(Protocol):
    """Where results are read from: a store, through its server or its file, or an export."""

    @property
    def experiment_id(self) -> str | None:
        """Id of the MLflow experiment that holds the runs, if there is one."""

    def cells(self, specs: "Iterable[CellSpec]") -> dict[str, CellRun]:
        """Return what is known of these cells, by cell id; unknown ones are left out."""

    def stage_accuracies(self, run_ids: Iterable[str]) -> dict[str, list[float]]:
        """Return the accuracy after each finished stage, by run id."""

    def live(self, run_ids: Iterable[str]) -> dict[str, Live]:
        """Return what was told during training, by run id."""

    def sweep(self, name: str) -> SweepRun | None:
        """Return the run of a sweep, if it has one."""

    def search(self, study: str) -> SweepRun | None:
        """Return the run of the search with that study, if it has one."""

    def artifact(self, run_id: str, path: str) -> bytes | None:
        """Return a file of a run, if it is there."""


class TimedSource(Source, Protocol):
    """A source that also knows how long stages of cells that were not asked for took."""

    def stage_times(self, place: str, method: str) -> list[StageTime]:
        """Return the times of the newest finished cells on a dataset by a method."""


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested fields under dotted names."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat
