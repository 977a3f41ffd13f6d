"""What a worker files of its cell: checkpoint, metrics, matrices, model, each safe to repeat."""

import csv
import hashlib
import io
import logging
import math
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import requests
from mlflow.entities import Metric, Run
from mlflow.exceptions import MlflowException

from oclgrid.platform.analysis_files import analysis_files
from oclgrid.platform.claims import Claimant
from oclgrid.platform.figures import confusion_figure
from oclgrid.platform.model import write_model
from oclgrid.platform.outbox import Letter, Numbers, Outbox, clear_out, outbox_root
from oclgrid.platform.provenance import hardware
from oclgrid.platform.results import ANALYSIS, ANALYSIS_BEGUN, ANALYSIS_ERROR, GPU_PEAK
from oclgrid.platform.store import Store, is_final, now_ms, one_line
from oclgrid.trainables.analysis import Analysis, Findings
from oclgrid.trainables.cell import Filed, TransientError
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.loop import Progress, StageRecord, summary
from oclgrid.trainables.predictor import Predictor
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import class_sequence

logger = logging.getLogger(__name__)
T = TypeVar("T")

CHECKPOINTS = "checkpoints"
CHECKPOINT_NAME = re.compile(r"stage-(\d+)-([0-9a-f]{64})\.pt")
PATIENCE_SECONDS = 300.0
"""How long a worker waits to read from a store that is away before its trial is given back."""
LIVE_SECONDS = 10.0


@dataclass
class MlflowCellLog:
    """The log of one cell in an MLflow run.

    What is filed goes to an outbox on the worker's disk, and is delivered while training goes on.
    The checkpoint of a stage is delivered before its metrics and holds them with their times, so
    a worker that finds it after a crash files the same metrics once more, which changes nothing.
    """

    uri: str
    run_id: str
    spec: CellSpec
    claimant: Claimant | None = None
    """Who works on the cell; without one, nothing keeps others from it."""
    _live_at: float = field(default=0.0, init=False)

    @cached_property
    def _store(self) -> Store:
        try:
            return Store(self.uri)
        except SpecError as error:  # the command has opened it before, so it is away
            raise TransientError(str(error)) from error

    @cached_property
    def _outbox(self) -> Outbox:
        return Outbox(outbox_root() / self.run_id, self._deliver)

    def claim(self) -> None:
        """Make the cell ours; raise ElsewhereError if it is another command's."""
        if claimant := self.claimant:
            _patiently(lambda: claimant.claim(self._store, self.spec.cell_id))

    def _check_claim(self) -> None:
        """Raise ElsewhereError if the cell was given to another command."""
        if claimant := self.claimant:
            _patiently(lambda: claimant.check(self._store))

    def filed(self) -> Filed:
        """Return whether the cell is finished, and which analyses are done.

        What an earlier attempt left on this machine is delivered first.
        """
        clear_out(outbox_root())
        self._outbox.send()
        if why := self._outbox.wait(PATIENCE_SECONDS):
            raise TransientError(why)
        run = self._run()
        if not run.data.params:  # who made the run died before saying what it is
            _patiently(lambda: self._store.describe_cell(self.run_id, self.spec))
        tags = run.data.tags.items()
        done = {k.removeprefix(ANALYSIS): v for k, v in tags if k.startswith(ANALYSIS)}
        return Filed(run.info.status == "FINISHED", done)

    def _run(self) -> Run:
        return _patiently(lambda: self._store.client.get_run(self.run_id))

    def begin(self) -> None:
        """Say that the cell is being worked on, and on what machine."""
        tags = {**hardware(), "host": socket.gethostname()}
        self._outbox.put(Letter(tags=tags, status="RUNNING"))

    def undelivered(self, seconds: float) -> str:
        """Return why something is not delivered after some seconds, "" as soon as all is."""
        return self._outbox.wait(seconds)

    def trouble(self) -> str:
        """Return why something cannot be delivered now, "" where all is well."""
        return self._outbox.trouble

    def _deliver(self, letter: Letter) -> None:
        """Give a letter to the store, but for what the store has from another attempt."""
        with _transient():
            if self.claimant:
                self.claimant.check(self._store)
            run = self._store.client.get_run(self.run_id)
            if run.info.status == "FINISHED":
                return
            self._upload(letter.files)
            for numbers in letter.numbers:
                if numbers.step > run.data.metrics.get("stage", 0):
                    self._store.log_numbers(
                        self.run_id, numbers.values, step=numbers.step, at=numbers.at
                    )
            if letter.tags:
                self._store.set_tags(self.run_id, letter.tags)
            if letter.status:
                self._store.set_status(self.run_id, letter.status)
            if letter.status == "FAILED" and self.claimant:  # others that wait for it see it
                self.claimant.give_up(self._store, self.spec.cell_id)

    def checkpoints(self) -> Iterator[bytes]:
        """Yield the checkpoints whose content has the digest in their name, newest first."""
        return self._checkpoints(None)

    def _checkpoints(self, stage: int | None) -> Iterator[bytes]:
        listed = _patiently(lambda: self._store.client.list_artifacts(self.run_id, CHECKPOINTS))
        names = [(m, f.path) for f in listed if (m := CHECKPOINT_NAME.search(f.path))]
        for match, path in sorted(names, key=lambda n: -int(n[0][1])):
            if stage not in (None, int(match[1])):
                continue
            content = self._download(path)
            if hashlib.sha256(content).hexdigest() == match[2]:
                yield content
            else:
                logger.warning("%s: %s is damaged; using the stage before", self.spec.title, path)

    def checkpoint(self, stage: int) -> bytes | None:
        """Return the checkpoint of a stage, if it is there and whole."""
        return next(self._checkpoints(stage), None)

    def _download(self, path: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            copy = _patiently(
                lambda: self._store.client.download_artifacts(self.run_id, path, folder)
            )
            return Path(copy).read_bytes()

    def stage_done(self, records: list[StageRecord], checkpoint: bytes | None) -> None:
        """File the checkpoint and the metrics of its stage; without one, of every stage."""
        if checkpoint is None:
            self._outbox.put(Letter(numbers=tuple(self._numbers(records, r) for r in records)))
            return
        digest = hashlib.sha256(checkpoint).hexdigest()
        name = f"{CHECKPOINTS}/stage-{records[-1].stage}-{digest}.pt"
        numbers = self._numbers(records, records[-1])
        self._outbox.put(Letter(files={name: checkpoint}, numbers=(numbers,)))

    def _numbers(self, records: list[StageRecord], record: StageRecord) -> Numbers:
        """Return what is known after the stage of a record."""
        until = records[: record.stage]
        values = {
            **summary(self.spec, until),
            "stage": record.stage,
            "train_seconds": sum(r.train_seconds for r in until),
            "inference_seconds": sum(r.inference_seconds for r in until),
            "trained_images": record.trained_images,
        }
        return Numbers(values=values, step=record.stage, at=record.finished_at_ms)

    def gpu_used(self, part: float) -> None:
        """Tag the run with the part of its GPU's memory that the cell has needed."""
        self._outbox.put(Letter(tags={GPU_PEAK: f"{part:.4f}"}))

    def progress(self, progress: Progress) -> None:
        """Log loss and speed now and then, without waiting; a lost point is no loss."""
        if time.monotonic() - self._live_at < LIVE_SECONDS or self._outbox.wait(0):
            return
        self._live_at = time.monotonic()
        values = {
            "loss": progress.loss,
            "images_per_second": progress.images_per_second,
            **progress.live,
        }
        step = (progress.stage - 1) * progress.batches + progress.batch
        metrics = [Metric(f"live/{k}", v, now_ms(), step) for k, v in values.items()]
        self._store.client.log_batch(self.run_id, metrics=metrics, synchronous=False)

    def finish(self, records: list[StageRecord], predictor: Predictor) -> None:
        """File matrices and model, then close the run."""
        classes = dataset(self.spec.dataset).classes
        sequence = class_sequence(classes, self.spec.class_order, self.spec.arrival)
        last = records[-1].confusion
        files = {
            "accuracy_matrix.csv": _csv(
                [["stage", *sequence]]
                + [
                    [r.stage, *r.accuracies, *[""] * (len(sequence) - len(r.accuracies))]
                    for r in records
                ]
            ),
            "confusion_matrix.csv": _csv(
                [["true \\ predicted", *sequence]]
                + [[c, *row] for c, row in zip(sequence, last, strict=True)]
            ),
            "confusion_matrix.png": confusion_figure(last, sequence, title=self.spec.title),
        }
        with tempfile.TemporaryDirectory() as folder:
            write_model(predictor, Path(folder) / "model", side=dataset(self.spec.dataset).side)
            files |= _files_below(Path(folder))
        self._outbox.put(Letter(files=files, tags={"error": ""}, status="FINISHED"))

    def analysed(self, analysis: Analysis, findings: Findings, *, stage: int) -> None:
        """File data, figure and numbers, then a tag that says so.

        Numbers go under the time at which the first attempt with these settings began: another
        attempt changes nothing, and numbers of new settings come after those of earlier ones.
        Numbers that only earlier settings gave, such as those of a set of outliers that was left
        out since, are unset.
        """
        self._check_claim()
        done, begun = ANALYSIS + analysis.name, ANALYSIS_BEGUN + analysis.name
        found = self._run().data
        tags = found.tags
        if tags.get(done) == analysis.digest:
            return
        digest, _, at = tags.get(begun, "").partition(" ")
        if digest != analysis.digest:
            at = str(now_ms())
            self._tag({begun: f"{analysis.digest} {at}"})
        if done in tags:  # with other settings, whose files are replaced now
            _patiently(lambda: self._store.client.delete_tag(self.run_id, done))
        files = analysis_files(analysis, findings, title=self.spec.title)
        _patiently(lambda: self._upload(files))
        earlier = {k: math.nan for k in found.metrics if k.startswith(f"{analysis.name}/")}
        numbers = earlier | {f"{analysis.name}/{k}": v for k, v in findings.numbers.items()}
        unset = [k for k, v in numbers.items() if math.isnan(v)]
        _patiently(lambda: self._store.unset_numbers(self.run_id, unset, step=stage, at=int(at)))
        _patiently(lambda: self._store.log_numbers(self.run_id, numbers, step=stage, at=int(at)))
        self._tag({done: analysis.digest})

    def _tag(self, tags: dict[str, str]) -> None:
        _patiently(lambda: self._store.set_tags(self.run_id, tags))

    def analyses_ended(self, failed: dict[str, str]) -> None:
        """Set a tag to why analyses failed, if any did."""
        reason = "; ".join(f"{name}: {why}" for name, why in failed.items())
        self._tag({ANALYSIS_ERROR: reason[:500]})

    def fail(self, reason: str, details: str) -> None:
        """Close the run as failed, with the reason as tag and the traceback as file."""
        files = {"error.txt": details.encode()}
        self._outbox.put(Letter(files=files, tags={"error": reason[:500]}, status="FAILED"))

    def _upload(self, files: dict[str, bytes]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self._store.client.log_artifacts(self.run_id, folder)


def _files_below(folder: Path) -> dict[str, bytes]:
    """Return the content of every file, by its path from the folder."""
    paths = (p for p in folder.rglob("*") if p.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _csv(rows: list[list[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _patiently(call: Callable[[], T]) -> T:
    """Return what the call returns; wait for a store that is away, but not for ever."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = 0.5
    while True:
        try:
            with _transient():
                return call()
        except TransientError as error:
            if time.monotonic() + pause > deadline:
                raise
            logger.warning("%s, trying again", error)
        time.sleep(pause)
        pause = min(pause * 2, 15.0)


@contextmanager
def _transient() -> Iterator[None]:
    """Raise TransientError where the store is away, full, read-only or refuses our password."""
    try:
        yield
    except (MlflowException, requests.RequestException, OSError) as error:
        if isinstance(error, MlflowException) and is_final(error):
            raise  # waiting would not help: the run is gone, or what we sent is refused
        raise TransientError(f"the store did not take it: {one_line(error)}") from error
