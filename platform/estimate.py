"""What the rest of a sweep will take, from the stages that were measured in the store."""

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from oclgrid.platform.results import CellRun, StageTime
from oclgrid.platform.yardstick import stage_time, yardstick
from oclgrid.search_spaces.budget import Price
from oclgrid.search_spaces.sweep import Sweep
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.spec import CellSpec, MethodConfig

Kind = tuple[str, str]
"""Dataset and method."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of one trial, and what they rest on."""

    seconds: float
    unknown: int
    """Cells of which nothing like them was ever measured."""
    basis: str
    elsewhere: float = 0.0
    """Seconds of those cells on one core of the machine of ``yardstick``, as far as known."""


class Estimator:
    """Mean times of a stage, by dataset and method; training grows with the share of the stream.

    Stages of the sweep's own cells are the basis. Only where it has none of a dataset and method,
    those of other cells in the store are, which may have another memory size or other options.
    """

    def __init__(
        self,
        cells: Iterable[CellSpec],
        found: Mapping[str, CellRun],
        others: Mapping[Kind, list[StageTime]],
    ) -> None:
        own: dict[Kind, list[StageTime]] = {}
        known = list(cells)
        self._shared = _shared(known)
        self._trained: set[object] = set()
        for spec in known:
            run = found.get(spec.cell_id)
            if run is not None and run.is_finished:
                self._trained.add(self._training(spec))
            if run is not None and run.stage:
                own.setdefault(kind(spec), []).append(StageTime.of(run, spec.stream_fraction))
        self._own, self._others = own, {k: t for k, t in others.items() if k not in own}
        self._times = self._own | self._others

    def stage_seconds(self, spec: CellSpec) -> float | None:
        """Return how long a stage of a cell takes; None if nothing like it was measured."""
        times = self._times.get(kind(spec))
        return _seconds(spec, times, trains=True) if times else None

    def gpu_peak(self, kind: Kind) -> float:
        """Return the largest part of a GPU's memory that cells of a kind have needed, if known."""
        return max((t.gpu_peak for t in self._times.get(kind, [])), default=0.0)

    def rest(self, cells: Iterable[CellSpec], found: Mapping[str, CellRun]) -> Estimate:
        """Return what the stages still missing of these cells take; who can, shares a training."""
        seconds, elsewhere, unknown = 0.0, 0.0, 0
        asked, trained = list(cells), set(self._trained)
        for spec in asked:
            training = self._training(spec)
            run = found.get(spec.cell_id)
            trains = training not in trained
            trained.add(training)
            left = dataset(spec.dataset).stages - (run.stage if run else 0)
            if times := self._times.get(kind(spec)):
                seconds += left * _seconds(spec, times, trains=trains)
            else:
                unknown += 1
                if known := stage_time(spec):
                    elsewhere += left * _seconds(spec, [known], trains=trains)
        basis = self._basis({kind(spec) for spec in asked})
        return Estimate(seconds, unknown, basis, elsewhere)

    def _training(self, spec: CellSpec) -> object:
        """Return what stands for the training of a cell: itself, where no other can share it."""
        return spec.training_id if _trained_as(spec) in self._shared else spec

    def _basis(self, kinds: set[Kind]) -> str:
        parts = []
        for name, times in (("of this sweep", self._own), ("of others", self._others)):
            if n := sum(len(t) for k, t in times.items() if k in kinds):
                parts.append(f"{n} cells {name}")
        return "by the stages measured in " + " and ".join(parts) if parts else ""


def kind(spec: CellSpec) -> Kind:
    """Return what cells must share to take alike long."""
    return spec.dataset, spec.method.name


def _seconds(spec: CellSpec, times: Iterable[StageTime], *, trains: bool) -> float:
    share = spec.stream_fraction if trains else 0.0
    return statistics.fmean(t.train * share + t.inference for t in times)


def _shared(cells: Iterable[CellSpec]) -> set[Kind]:
    """Return the trainings of which there are variants: only those may be alike.

    Ids of trainings are dear, and most sweeps have no variants.
    """
    variants: dict[Kind, set[MethodConfig]] = {}
    for spec in cells:
        variants.setdefault(_trained_as(spec), set()).add(spec.method)
    return {kind for kind, methods in variants.items() if len(methods) > 1}


def _trained_as(spec: CellSpec) -> Kind:
    return spec.dataset, spec.method.trains_as or spec.method.name


def cost_lines(sweep: Sweep, estimate: Estimate, auto_share: float = 0.0) -> Iterator[str]:
    """Yield what the rest of a sweep will take and cost, and what that rests on.

    ``auto_share`` is the share of a GPU that auto means, 0 where it was not measured.
    """
    share = auto_share if sweep.resources.gpu == "auto" else sweep.resources.gpu
    if estimate.seconds:
        core_hours = estimate.seconds * sweep.resources.cpus / 3600
        gpu_hours = estimate.seconds * share / 3600
        parts = [f"{_brief(core_hours)} core hours"]
        parts += [f"{_brief(gpu_hours)} GPU hours"] if gpu_hours else []
        if sweep.price != Price():
            parts.append(f"{sweep.price.of(core_hours, gpu_hours):.2f} of money")
        yield f"about {', '.join(parts)}, {estimate.basis}"
    if sweep.price.gpu_hour and sweep.resources.gpu == "auto" and not share:
        yield "without GPUs, as resources.gpu is auto; set it to a share to count them"
    if estimate.unknown:
        told = f"no measured stage yet to estimate {estimate.unknown} cells by"
        if estimate.elsewhere:
            hours, machine = _brief(estimate.elsewhere / 3600), yardstick()["machine"]
            told += f"; one core of an {machine} would take {hours} hours for them"
        yield told


def _brief(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 1 else f"{hours:.2g}"
