"""A cell as a Ray Tune trainable: one step is one stage; all that lasts goes through the log."""

import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from ray import tune

from oclgrid.trainables.analysis import Analysis, Findings
from oclgrid.trainables.loop import (
    Cell,
    CheckpointError,
    DivergedError,
    Progress,
    StageRecord,
    summary,
)
from oclgrid.trainables.predictor import Predictor
from oclgrid.trainables.remembered import KnownFeatures
from oclgrid.trainables.snapshots import Snapshots
from oclgrid.trainables.spec import CellSpec

logger = logging.getLogger(__name__)

DELIVERY_SECONDS = 3600.0
"""How long a cell that has ended waits for its results to be delivered before it is given back."""
LEAVING_SECONDS = 10.0
"""How long a trial that is stopped between stages waits for them to be delivered; what is not
then stays on this machine until its cell is taken up again."""
LOOK_SECONDS = 5.0
"""How often it tells meanwhile why they are not."""
CONTEXT_BYTES = 500 * 2**20
"""What CUDA takes for each process beside its tensors; no call tells it."""


class TransientError(Exception):
    """Something outside the program was not there; trying again may help."""


class OutOfMemoryError(TransientError):
    """The cell did not fit into its share of the machine; trying again with more may help."""


class ElsewhereError(Exception):
    """Another command works on the cell; says which."""


ELSEWHERE = "another command works on it"
"""How the error of a cell begins that is left to another command."""


@dataclass(frozen=True, slots=True)
class Filed:
    """What the log holds of a cell."""

    is_finished: bool
    analyses: dict[str, str]
    """Digest of the settings of each analysis that is done, by its name."""


class CellLog(Protocol):
    """Where a trial's results go, and where it finds those of an earlier attempt."""

    def claim(self) -> None:
        """Make the cell ours; raise ElsewhereError if it is another command's."""

    def filed(self) -> Filed:
        """Return what earlier attempts have filed."""

    def begin(self) -> None:
        """Say that the cell is being worked on."""

    def checkpoints(self) -> Iterator[bytes]:
        """Yield the whole checkpoints there are, newest first."""

    def checkpoint(self, stage: int) -> bytes | None:
        """Return the checkpoint of a stage, if it is there and whole."""

    def stage_done(self, records: list[StageRecord], checkpoint: bytes | None) -> None:
        """Keep the checkpoint, then the metrics; doing so again changes nothing."""

    def undelivered(self, seconds: float) -> str:
        """Return why something is not delivered after some seconds, "" as soon as all is."""

    def trouble(self) -> str:
        """Return why something cannot be delivered now, "" where all is well."""

    def gpu_used(self, part: float) -> None:
        """Note the largest part of its GPU's memory that the cell has needed so far."""

    def progress(self, progress: Progress) -> None:
        """Note where the stage is; losing this loses nothing."""

    def finish(self, records: list[StageRecord], predictor: Predictor) -> None:
        """Keep the matrices and the model and close the cell."""

    def analysed(self, analysis: Analysis, findings: Findings, *, stage: int) -> None:
        """Keep what an analysis found after the last stage; doing so again changes nothing."""

    def analyses_ended(self, failed: dict[str, str]) -> None:
        """Keep why analyses failed, by name, if any did; the cell stays finished."""

    def fail(self, reason: str, details: str) -> None:
        """Close the cell as failed."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A cell to run, and its log."""

    spec: CellSpec
    log: CellLog
    donor: CellLog | None = None
    """Log of a finished cell with the same training, whose stages need only be tested anew."""
    analyses: tuple[Analysis, ...] = ()
    """What to compute of the cell once it is finished."""


class CellTrainable(tune.Trainable):
    """One attempt at a cell. Everything it needs to go on is in the log, nothing in Ray."""

    def setup(  # type: ignore[override]  # Tune hands over what with_parameters was given
        self,
        config: dict[str, Any],
        assignments: dict[str, Assignment],
        board: Any,
        data: str,
        share: dict[str, float],
    ) -> None:
        """Remember what to work on; the work itself, and its errors, belong to ``step``.

        ``share`` is what a trial owns of the machine; one that ran out of memory may own more.
        """
        self._assignments, self._board, self._data, self._share = assignments, board, data, share
        self._known_features = KnownFeatures()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take on another cell in the same process.

        Nothing of the last one is kept but features of test images, for one that shares them.
        """
        self.cleanup()
        self._todo = self._assignments[new_config["cell_id"]]
        if self._todo.donor is None:  # it trains, and has use for the memory
            self._known_features = KnownFeatures()
        self._cell: Cell | None = None
        self._progress: Progress | None = None
        self._first_error = ""
        self._snapshots: Snapshots | None = None
        self._is_filed = False
        self._device = "cpu"
        self._left: list[Analysis] = []
        self._failed: dict[str, str] = {}
        return True

    def cleanup(self) -> None:
        """Let arrive what was filed: Tune stops trials between stages."""
        if todo := getattr(self, "_todo", None):
            with suppress(Exception):  # the next attempt at the cell is told
                todo.log.undelivered(LEAVING_SECONDS)

    def step(self) -> dict[str, Any]:
        """Run one stage; an error of the surroundings is for Tune to retry.

        One of the program is retried here, once in a cell, from its last checkpoint.
        """
        try:
            return self._try()
        except ElsewhereError as error:
            reason = f"{ELSEWHERE}: {error}"
            known = {"cell_id": self._todo.spec.cell_id, "is_elsewhere": True}
            return {**known, "cell_done": True, "done": True, "error": reason}

    def _try(self) -> dict[str, Any]:
        try:
            return self._work()
        except (TransientError, ElsewhereError):
            raise
        except Exception as error:
            if _is_out_of_memory(error) and self._owned == self._share:
                raise OutOfMemoryError(_one_line(error)) from error
            if self._first_error or isinstance(error, DivergedError):
                return self._give_up(error)
            self._first_error = _one_line(error)
            logger.warning("%s: tries again", self._todo.spec.title, exc_info=error)
        self._cell = None
        return {"retried": self._first_error, **self._try()}

    def _give_up(self, error: Exception) -> dict[str, Any]:
        """Close the cell as failed, or leave out its analyses; return what to tell."""
        reason, log = _one_line(error), self._todo.log
        if _is_out_of_memory(error):
            reason = f"{reason}; it had {self._owned}, raise resources in the sweep"
        result = {"cell_id": self._todo.spec.cell_id, "cell_done": True, "done": True}
        if self._is_filed:
            log.analyses_ended({a.name: reason for a in self._left})
            return {**result, "analysis_error": reason}
        try:
            log.fail(reason, "".join(traceback.format_exception(error)))
            self._settle()
        except (TransientError, ElsewhereError):
            raise
        except Exception:  # the run is gone, which may be why the cell failed
            logger.exception("%s: cannot be closed", self._todo.spec.title)
        return {**result, "error": reason}

    def _work(self) -> dict[str, Any]:
        if self._cell is None:
            self._cell = self._open()
            if self._is_filed:
                return self._result(self._cell)  # tells what comes next
        if self._is_filed:
            return self._analyse(self._cell)
        return self._advance(self._cell)

    def _advance(self, cell: Cell) -> dict[str, Any]:
        """Run the next stage; after the last one, close the cell."""
        log = self._todo.log
        seconds = 0.0
        if not cell.is_finished:
            started = time.perf_counter()
            self._cell = cell = self._next_stage(cell)
            seconds = time.perf_counter() - started  # the record has those of a donor's training
            log.stage_done(cell.records, cell.checkpoint())
            if self._device == "cuda":
                log.gpu_used(_gpu_peak())
        if cell.is_finished:
            log.finish(cell.records, cell.predictor())
            self._settle()
            self._is_filed = True
        is_adopted = self._todo.donor is not None
        return {**self._result(cell), "stage_seconds": seconds, "is_adopted": is_adopted}

    def _settle(self) -> None:
        """Return once all is delivered: an end that is known here only is none."""
        deadline = time.monotonic() + DELIVERY_SECONDS
        while why := self._todo.log.undelivered(LOOK_SECONDS):
            if time.monotonic() > deadline:
                raise TransientError(why)
            if self._progress is not None:
                self._post(replace(self._progress, waiting=why))

    def _analyse(self, cell: Cell) -> dict[str, Any]:
        """Compute the next analysis of a closed cell; one that fails is told and left out."""
        log, analysis = self._todo.log, self._left.pop(0)
        started = time.perf_counter()
        try:
            log.analysed(analysis, self._findings(cell, analysis), stage=cell.info.stages)
        except (TransientError, ElsewhereError):
            raise
        except Exception as error:
            logger.exception("%s: %s", self._todo.spec.title, analysis.name)
            self._failed[analysis.name] = _one_line(error)
        if not self._left:
            log.analyses_ended(self._failed)
        return {
            **self._result(cell),
            "analysis": analysis.name,
            "analysis_error": self._failed.get(analysis.name, ""),
            "analysis_seconds": time.perf_counter() - started,
        }

    def _findings(self, cell: Cell, analysis: Analysis) -> Findings:
        if not cell.is_finished:  # it was, so training it further would file its metrics twice
            raise CheckpointError("the checkpoint of the last stage is missing or damaged")
        if self._snapshots is None:
            checkpoint = self._todo.log.checkpoint
            self._snapshots = Snapshots(cell, checkpoint, data=Path(self._data))
        return analysis.compute(self._snapshots)

    def _result(self, cell: Cell) -> dict[str, Any]:
        spec = self._todo.spec
        is_done = self._is_filed and not self._left
        return {
            "cell_id": spec.cell_id,
            "stage": len(cell.records),
            "cell_done": is_done,  # Tune sets "done" of a trial that it stops
            "done": is_done,
            "next": self._left[0].name if self._is_filed and self._left else "",
            **(summary(spec, cell.records) if cell.records else {}),
        }

    def _next_stage(self, cell: Cell) -> Cell:
        """Return the cell one stage further: tested only, where a donor has trained it already."""
        donor = self._todo.donor
        if donor is not None:
            try:
                content = donor.checkpoint(len(cell.records) + 1)
                if content is None:
                    raise CheckpointError("it is missing or damaged")
                cell.adopt_stage(content, self._known_features)
                return cell
            except CheckpointError as error:
                logger.warning("%s: trains by itself: %s", self._todo.spec.title, error)
                self._todo = replace(self._todo, donor=None)
                cell = self._open()  # it may be half loaded
        cell.run_stage(self._report)
        return cell

    def _open(self) -> Cell:
        """Return the cell as its newest usable checkpoint left it, or new."""
        spec, log = self._todo.spec, self._todo.log
        log.claim()
        filed = log.filed()
        self._is_filed = filed.is_finished
        self._left = [a for a in self._todo.analyses if filed.analyses.get(a.name) != a.digest]
        if not self._is_filed:
            log.begin()
        self._device = device = self._use_share()
        cell = Cell(spec, Path(self._data), device=device)
        for content in log.checkpoints():
            try:
                cell.resume(content)
            except CheckpointError as error:
                logger.warning("%s: checkpoint refused: %s", spec.title, error)
                cell = Cell(spec, Path(self._data), device=device)  # it may be half loaded
                continue
            if not self._is_filed:
                log.stage_done(cell.records, None)
            break
        return cell

    def _use_share(self) -> str:
        """Keep to the trial's share of the machine; return the device to train on."""
        # Not as many as it owns where it was given more for its memory: threads change last bits.
        torch.set_num_threads(max(1, int(self._share.get("CPU", 1))))
        share = self._owned.get("GPU", 0.0)
        if not share or not torch.cuda.is_available():
            return "cpu"
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))
        torch.cuda.empty_cache()  # of the last cell in this process
        torch.cuda.reset_peak_memory_stats()
        return "cuda"

    @property
    def _owned(self) -> dict[str, float]:
        """What Ray gave this trial."""
        return dict(self.trial_resources.required_resources) if self.trial_resources else {}

    def _report(self, progress: Progress) -> None:
        self._progress = replace(progress, waiting=self._todo.log.trouble())
        self._post(self._progress)
        self._todo.log.progress(progress)

    def _post(self, progress: Progress) -> None:
        self._board.post.remote(self._todo.spec.cell_id, asdict(progress))


def _gpu_peak() -> float:
    """Return the largest part of the GPU's memory that this process has held."""
    held = torch.cuda.max_memory_reserved() + CONTEXT_BYTES
    return held / torch.cuda.get_device_properties(0).total_memory


def _is_out_of_memory(error: Exception) -> bool:
    is_allocator = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return is_allocator or isinstance(error, MemoryError | torch.OutOfMemoryError)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
