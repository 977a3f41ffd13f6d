"""What a sweep still needs: which cells are finished, can go on, or are missing."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from oclgrid.platform.estimate import Estimate, Estimator, Kind, kind
from oclgrid.platform.gpu_share import auto_share
from oclgrid.platform.location import Location
from oclgrid.platform.reading import open_source
from oclgrid.platform.results import CellRun, StageTime
from oclgrid.search_spaces.sweep import Sweep
from oclgrid.trainables.analysis import Analysis
from oclgrid.trainables.spec import CellSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The cells of a sweep against what the store holds."""

    cells: tuple[CellSpec, ...]
    found: dict[str, CellRun]
    is_filed: bool
    """Whether every cell is finished and analysed and the sweep's tables are written."""
    analyses: tuple[Analysis, ...] = ()
    """What is to be computed of each finished cell."""
    others: Mapping[Kind, list[StageTime]] = field(default_factory=dict)
    """Times of other cells in the store, by dataset and method of which this sweep has none."""

    @property
    def todo(self) -> list[CellSpec]:
        """Cells to run, in the sweep's order."""
        return [c for c in self.cells if not self._is_finished(c)]

    @property
    def to_analyse(self) -> list[CellSpec]:
        """Finished cells of which an analysis is missing, or was done with other settings."""
        return [c for c in self.cells if self._is_finished(c) and self._lacks_analyses(c)]

    def _lacks_analyses(self, spec: CellSpec) -> bool:
        return not all(self.found[spec.cell_id].has(a) for a in self.analyses)

    def _is_finished(self, spec: CellSpec) -> bool:
        return spec.cell_id in self.found and self.found[spec.cell_id].is_finished

    def stage(self, spec: CellSpec) -> int:
        """Return how many stages of a cell are done."""
        run = self.found.get(spec.cell_id)
        return run.stage if run else 0

    def state(self, spec: CellSpec) -> str:
        """Return "finished", "to analyse", "failed", "resumable" or "missing"."""
        run = self.found.get(spec.cell_id)
        if run is None:
            return "missing"
        if run.is_finished:
            return "to analyse" if self._lacks_analyses(spec) else "finished"
        if run.status == "FAILED":
            return "failed"
        return "resumable" if run.stage else "missing"

    @property
    def told(self) -> str:
        """The plan in one line."""
        states = [self.state(c) for c in self.cells]
        parts = [
            f"{states.count(s)} {s}"
            for s in ("finished", "to analyse", "resumable", "failed", "missing")
            if states.count(s)
        ]
        return f"{len(self.cells)} cells: {', '.join(parts)}"

    @property
    def estimator(self) -> Estimator:
        """Tells how long stages of the cells take."""
        return Estimator(self.cells, self.found, self.others)

    @property
    def auto_share(self) -> float:
        """What auto means for the share of a GPU: enough for each kind of cell still to run."""
        return auto_share(self._gpu_peaks)

    @property
    def measured_share(self) -> float:
        """The same where all of it was measured, else 0."""
        return self.auto_share if all(self._gpu_peaks) and self._gpu_peaks else 0.0

    @property
    def _gpu_peaks(self) -> list[float]:
        kinds = {kind(c) for c in self.todo + self.to_analyse}
        estimator = self.estimator
        return [estimator.gpu_peak(k) for k in kinds]

    @property
    def estimate(self) -> Estimate:
        """What the cells still to run will take."""
        return self.estimator.rest(self.todo, self.found)

    @property
    def spent_seconds(self) -> float:
        """What the stages that are done took."""
        runs = [run for run in self.found.values() if run.stage]
        names = ("train_seconds", "inference_seconds")
        return sum(run.numbers[name] for run in runs for name in names)


def make_plan(sweep: Sweep, location: Location) -> Plan:
    """Return the plan; a store that does not exist yet is empty and stays uncreated."""
    if not location.exists:
        return Plan(cells=sweep.cells, found={}, is_filed=False, analyses=sweep.analyses)
    source = open_source(location)
    found = source.cells(sweep.cells)
    run = source.sweep(sweep.name)
    plan = Plan(cells=sweep.cells, found=found, is_filed=False, analyses=sweep.analyses)
    is_filed = (
        run is not None
        and run.status == "FINISHED"
        and run.tags.get("content") == content_digest(sweep)
        and not plan.todo
        and not plan.to_analyse
    )
    measured = {kind(c) for c in plan.cells if plan.stage(c)}
    kinds = {kind(c) for c in plan.todo} - measured
    others = {k: times for k in sorted(kinds) if (times := source.stage_times(*k))}
    return replace(plan, is_filed=is_filed, others=others)


def content_digest(sweep: Sweep) -> str:
    """Return what tells one content of a sweep from another under the same name."""
    ids = ",".join(sorted(c.cell_id for c in sweep.cells))
    return hashlib.sha256(ids.encode()).hexdigest()[:16]
