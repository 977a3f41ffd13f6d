"""One cell from its spec to its numbers, stage by stage, in a plain process."""

import io
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from oclgrid.trainables.datasets import dataset, load
from oclgrid.trainables.maths import metrics
from oclgrid.trainables.network import Features
from oclgrid.trainables.predictor import Predictor, evaluating
from oclgrid.trainables.registry import find
from oclgrid.trainables.remembered import KnownFeatures
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import Stream

CHECKPOINT_FORMAT = 1
PROGRESS_SECONDS = 2.0


class DivergedError(Exception):
    """A loss was no longer a number; the same cell would diverge again."""


class CheckpointError(Exception):
    """A checkpoint that cannot be used, with the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRecord:
    """What is known after a stage; the last one says it all."""

    stage: int
    """1-based, as in the paper."""
    accuracies: list[float]
    """Accuracy of each class seen so far, by arrival rank."""
    confusion: list[list[int]]
    """Test images by true rank (rows, seen classes) and predicted rank (columns, all classes)."""
    train_seconds: float
    inference_seconds: float
    trained_images: int
    """Since the first stage, views counted one by one."""
    finished_at_ms: int
    """When the stage ended; also the time its metrics are logged under, however often they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a cell is inside a stage."""

    stage: int
    batch: int
    batches: int
    loss: float
    images_per_second: float
    live: dict[str, float]
    waiting: str = ""
    """Why results of earlier stages are not delivered yet, where they are not."""


_RECORD_FIELDS = {f.name for f in fields(StageRecord)}


class Cell:
    """One cell in training."""

    def __init__(self, spec: CellSpec, data: Path, *, device: str = "cpu") -> None:
        self.spec, self.info = spec, dataset(spec.dataset)
        splits = load(self.info, data, wanted=spec.data_digest)
        target = torch.device(device)
        self.stream = Stream(spec, self.info, splits, device=target)
        self.method = find(spec.method.name).learner(spec, self.info, self.stream, device=target)
        self.records: list[StageRecord] = []
        self._tested_by: Predictor | None = None

    @property
    def is_finished(self) -> bool:
        """Whether all stages are done."""
        return len(self.records) == self.info.stages

    def run_stage(self, on_progress: Callable[[Progress], None] = lambda _: None) -> StageRecord:
        """Train on the next stage, test on all classes seen so far, return the record."""
        stage, self._tested_by = len(self.records), None
        self.method.begin_stage(stage)
        started = time.perf_counter()
        self._train(stage, on_progress)
        trained = time.perf_counter()
        return self._tested(train_seconds=trained - started)

    def adopt_stage(self, content: bytes, known: KnownFeatures | None = None) -> StageRecord:
        """Take the next stage from a checkpoint of a cell with the same training; only test it.

        ``known`` is what other such cells have left of their tests, and is left what this one adds.
        """
        saved = _read_checkpoint(content, "training_id", self.spec.training_id)
        stage = len(self.records)
        if len(saved["records"]) != stage + 1:
            raise CheckpointError(f"is not of stage {stage + 1}")
        self._load(saved, stage)
        return self._tested(train_seconds=saved["records"][stage]["train_seconds"], known=known)

    def _tested(self, *, train_seconds: float, known: KnownFeatures | None = None) -> StageRecord:
        """Test on all classes seen so far and keep the record."""
        started = time.perf_counter()
        self._tested_by = self.method.predictor()
        known = known or KnownFeatures(limit_bytes=0)
        confusion, saved_seconds = self._test(self._tested_by, known)
        record = StageRecord(
            stage=len(self.records) + 1,
            accuracies=[row[i] / sum(row) for i, row in enumerate(confusion)],
            confusion=confusion,
            train_seconds=train_seconds,
            inference_seconds=time.perf_counter() - started + saved_seconds,
            trained_images=self.method.trained_images,
            finished_at_ms=time.time_ns() // 1_000_000,
        )
        self.records.append(record)
        return record

    def _train(self, stage: int, on_progress: Callable[[Progress], None]) -> None:
        """Algorithm 1, for the incoming data of one stage."""
        method, config = self.method, self.spec.method
        watch = _Watch(self, stage, on_progress)
        for incoming in self.stream.batches(stage):
            if config.memory_update == "before":
                method.remember(incoming)
            method.receive(incoming)
            for _ in range(config.updates_per_batch):
                replay = method.retrieve(incoming)
                method.learn(incoming, replay)
            if config.memory_update == "after":
                method.remember(incoming)
            watch.batch_done()
        method.end_stage()
        watch.look()
        watch.require_finite_weights()

    def _test(self, predictor: Predictor, known: KnownFeatures) -> tuple[list[list[int]], float]:
        """Return the confusion, and the seconds saved by features that were known."""
        classes, seen, saved_seconds = self.info.classes, self.method.seen_classes, 0.0
        place = (self.spec.training_id, len(self.records))
        counts = torch.zeros(seen * classes, dtype=torch.int64)
        with evaluating(predictor):
            for batch, (images, labels) in enumerate(self.stream.evaluation(seen)):
                features, seconds = known.of(*place, batch, partial(predictor.features, images))
                saved_seconds += seconds
                ranks = predictor.scores(features.to(self.method.device)).argmax(1)
                cells = labels * classes + ranks.cpu()
                counts += torch.bincount(cells, minlength=len(counts))
        return counts.view(-1, classes).tolist(), saved_seconds

    def checkpoint(self) -> bytes:
        """Return everything needed to go on after the last finished stage.

        Random generators are derived anew for each stage, so none has a state to keep.
        """
        content = {
            "format": CHECKPOINT_FORMAT,
            "cell_id": self.spec.cell_id,
            "training_id": self.spec.training_id,
            "records": [asdict(r) for r in self.records],
            "method": self.method.state(),
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        return buffer.getvalue()

    def resume(self, content: bytes) -> None:
        """Take over what ``checkpoint`` returned, in this process or another."""
        saved = _read_checkpoint(content, "cell_id", self.spec.cell_id)
        self._load(saved, len(saved["records"]) - 1)
        self.records = [StageRecord(**r) for r in saved["records"]]

    def _load(self, saved: dict[str, Any], stage: int) -> None:
        self._tested_by = None
        try:
            self.method.load(saved["method"])
            self.method.begin_stage(stage)
        except (KeyError, TypeError, AttributeError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"does not fit this cell: {_first_line(error)}") from error

    def backbone_of(self, content: bytes, stage: int) -> Features:
        """Return the backbone as it was after a stage, from that stage's checkpoint."""
        saved = _read_checkpoint(content, "cell_id", self.spec.cell_id)
        if len(saved["records"]) != stage:
            raise CheckpointError(f"is not of stage {stage}")
        backbone = self.method.fresh_backbone()
        name = "backbone."
        weights = {k: v for k, v in saved["method"]["net"].items() if k.startswith(name)}
        backbone.load_state_dict({k.removeprefix(name): v for k, v in weights.items()})
        return backbone

    def predictor(self) -> Predictor:
        """Return the classifier of the last finished stage; after a test, the one tested."""
        return self._tested_by or self.method.predictor()


def _read_checkpoint(content: bytes, key: str, wanted: str) -> dict[str, Any]:
    """Return a checkpoint whose ``key`` says that it belongs where it is wanted."""
    try:
        saved = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a broken or foreign file
        raise CheckpointError(f"not a readable checkpoint: {_first_line(error)}") from error
    if not isinstance(saved, dict) or saved.get("format") != CHECKPOINT_FORMAT:
        raise CheckpointError(f"not a checkpoint of format {CHECKPOINT_FORMAT}")
    if saved.get(key) != wanted:
        raise CheckpointError(f"its {key} is {saved.get(key)}, not {wanted}")
    records = saved.get("records")
    if not isinstance(records, list) or not records or set(records[-1]) != _RECORD_FIELDS:
        raise CheckpointError("its records are not those of this version")
    return saved


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).split(chr(10))[0][:200]}"


class _Watch:
    """Looks at the losses now and then, so that no step waits for the device."""

    def __init__(self, cell: Cell, stage: int, on_progress: Callable[[Progress], None]) -> None:
        self._method, self._stage, self._report = cell.method, stage, on_progress
        self._batches = cell.stream.batches_in(stage)
        self._batch = self._step = 0
        self._last, self._images = time.perf_counter(), cell.method.trained_images

    def batch_done(self) -> None:
        self._batch += 1
        if time.perf_counter() - self._last >= PROGRESS_SECONDS:
            self.look()

    def look(self) -> None:
        """Report progress; fail where a loss since the last look was not finite."""
        if not self._method.losses:
            return
        losses = torch.stack(self._method.losses).cpu()
        self._method.losses.clear()
        bad = torch.nonzero(~losses.isfinite())
        if len(bad):
            step = self._step + int(bad[0]) + 1
            raise DivergedError(
                f"the loss was {losses[int(bad[0])].item()} at training step {step} of stage "
                f"{self._stage + 1}; lower learning_rate"
            )
        self._step += len(losses)
        now, images = time.perf_counter(), self._method.trained_images
        self._report(
            Progress(
                stage=self._stage + 1,
                batch=self._batch,
                batches=self._batches,
                loss=losses.mean().item(),
                images_per_second=(images - self._images) / max(now - self._last, 1e-9),
                live={k: float(v) for k, v in self._method.live.items()},
            )
        )
        self._last, self._images = now, images

    def require_finite_weights(self) -> None:
        """Fail where the losses looked sound but the network no longer is."""
        tensors = [t for t in self._method.net.state_dict().values() if t.is_floating_point()]
        if not torch.stack([t.isfinite().all() for t in tensors]).all():
            raise DivergedError(
                f"the network had weights that are no numbers at training step {self._step} of "
                f"stage {self._stage + 1}, its last; lower learning_rate"
            )


def summary(spec: CellSpec, records: list[StageRecord]) -> dict[str, float]:
    """Return E, A, F and beta after the last of these stages (F from the second stage on)."""
    classes = dataset(spec.dataset).classes
    accuracy_TC = torch.full((len(records), classes), math.nan, dtype=torch.float64)
    for t, record in enumerate(records):
        accuracy_TC[t, : len(record.accuracies)] = torch.tensor(
            record.accuracies, dtype=torch.float64
        )
    last = torch.tensor(records[-1].accuracies, dtype=torch.float64)
    numbers = {
        "E": metrics.end_accuracy(accuracy_TC),
        "A": metrics.average_accuracy(accuracy_TC),
        "beta": metrics.balance(last),
    }
    if len(records) > 1:
        numbers["F"] = metrics.forgetting(accuracy_TC)
    return numbers
