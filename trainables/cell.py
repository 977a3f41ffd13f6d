"""A cell as a Ray Tune trainable: one step is one stage; all that lasts goes through the log."""

import logging
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from ray import tune

from oclgrid.trainables.loop import Cell, CheckpointError, Progress, StageRecord, summary
from oclgrid.trainables.predictor import Predictor
from oclgrid.trainables.spec import CellSpec

logger = logging.getLogger(__name__)


class TransientError(Exception):
    """Something outside the program was not there; trying again may help."""


class CellLog(Protocol):
    """Where a trial's results go, and where it finds those of an earlier attempt."""

    def begin(self) -> None:
        """Say that the cell is being worked on."""

    def checkpoints(self) -> Iterator[bytes]:
        """Yield the whole checkpoints there are, newest first."""

    def checkpoint(self, stage: int) -> bytes | None:
        """Return the checkpoint of a stage, if it is there and whole."""

    def stage_done(self, records: list[StageRecord], checkpoint: bytes | None) -> None:
        """Keep the checkpoint, then the metrics; doing so again changes nothing."""

    def progress(self, progress: Progress) -> None:
        """Note where the stage is; losing this loses nothing."""

    def finish(self, records: list[StageRecord], predictor: Predictor) -> None:
        """Keep the matrices and the model and close the cell."""

    def fail(self, reason: str, details: str) -> None:
        """Close the cell as failed."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A cell to run, and its log."""

    spec: CellSpec
    log: CellLog
    donor: CellLog | None = None
    """Log of a finished cell with the same training, whose stages need only be tested anew."""


class CellTrainable(tune.Trainable):
    """One attempt at a cell. Everything it needs to go on is in the log, nothing in Ray."""

    def setup(  # type: ignore[override]  # Tune hands over what with_parameters was given
        self, config: dict[str, Any], assignments: dict[str, Assignment], board: Any, data: str
    ) -> None:
        """Remember what to work on; the work itself, and its errors, belong to ``step``."""
        self._assignments, self._board, self._data = assignments, board, data
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take on another cell in the same process: nothing of the last one is kept."""
        self._todo = self._assignments[new_config["cell_id"]]
        self._cell: Cell | None = None
        return True

    def step(self) -> dict[str, Any]:
        """Run one stage. An error of the program is final; one of the surroundings is retried."""
        try:
            return self._advance()
        except TransientError:
            raise
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self._todo.log.fail(reason, traceback.format_exc())
            return {"cell_id": self._todo.spec.cell_id, "error": reason, "done": True}

    def _advance(self) -> dict[str, Any]:
        spec, log = self._todo.spec, self._todo.log
        if self._cell is None:
            self._cell = self._open()
        cell = self._cell
        seconds = 0.0
        if not cell.is_finished:
            self._cell = cell = self._next_stage(cell)
            seconds = cell.records[-1].train_seconds + cell.records[-1].inference_seconds
            log.stage_done(cell.records, cell.checkpoint())
        if cell.is_finished:
            log.finish(cell.records, cell.predictor())
        return {
            "cell_id": spec.cell_id,
            "stage": len(cell.records),
            "stage_seconds": seconds,
            "done": cell.is_finished,
            **summary(spec, cell.records),
        }

    def _next_stage(self, cell: Cell) -> Cell:
        """Return the cell one stage further: tested only, where a donor has trained it already."""
        donor = self._todo.donor
        if donor is not None:
            try:
                content = donor.checkpoint(len(cell.records) + 1)
                if content is None:
                    raise CheckpointError("it is missing or damaged")
                cell.adopt_stage(content)
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
        log.begin()
        device = self._use_share()
        cell = Cell(spec, Path(self._data), device=device)
        for content in log.checkpoints():
            try:
                cell.resume(content)
            except CheckpointError as error:
                logger.warning("%s: checkpoint refused: %s", spec.title, error)
                cell = Cell(spec, Path(self._data), device=device)  # it may be half loaded
                continue
            log.stage_done(cell.records, None)
            break
        return cell

    def _use_share(self) -> str:
        """Keep to the trial's share of the machine; return the device to train on."""
        owned = self.trial_resources.required_resources if self.trial_resources else {}
        torch.set_num_threads(max(1, int(owned.get("CPU", 1))))
        share = owned.get("GPU", 0.0)
        if not share or not torch.cuda.is_available():
            return "cpu"
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))
        return "cuda"

    def _report(self, progress: Progress) -> None:
        self._board.post.remote(self._todo.spec.cell_id, asdict(progress))
        self._todo.log.progress(progress)
