"""What every method promises, asked of all that the registry finds."""

import io
import pickle
import random
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch

from oclgrid.trainables.datasets import DATASETS, Dataset
from oclgrid.trainables.decoded import digest
from oclgrid.trainables.loop import Cell, CheckpointError, DivergedError, StageRecord, summary
from oclgrid.trainables.registry import all_methods
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.sources import Images, Splits
from oclgrid.trainables.spec import CellSpec, MethodConfig

pytestmark = pytest.mark.usefixtures("one_thread")

METHODS = list(all_methods())
WITH_CENTRES = [n for n, e in all_methods().items() if e.config().classifier != "softmax"]
STAGES = range(1, 5)
MEMORY_SIZE = 20
NOWHERE = Path("/nonexistent")
TRAINED_IMAGES: dict[str, int] = {"ewc": 80}
"""Images trained on per incoming batch, where it is not the paper's 160."""
ONLY_GLOBAL = {"dualnet"}
ONLY_FLOAT32 = {"gss"}
"""Methods that refuse another pooling of the features than the global one."""


@dataclass(frozen=True)
class Run:
    """A cell that ran without a break, and what it left behind."""

    spec: CellSpec
    records: list[StageRecord]
    checkpoints: list[bytes]
    batches: list[int]
    has_left_globals_alone: bool


def config(name: str, **changes: Any) -> MethodConfig:
    return all_methods()[name].config(**changes)


def spec(method: MethodConfig, **changes: Any) -> CellSpec:
    base = CellSpec(
        dataset="digits",
        data_digest=DATASETS["digits"].digest,
        memory_size=MEMORY_SIZE,
        class_order=1,
        seed=3,
        method=method,
        protocol="validation",
        stream_fraction=0.08,
    )
    return replace(base, **changes)


def global_randomness() -> tuple[object, ...]:
    kind, keys, *rest = np.random.get_state()
    return (
        torch.random.get_rng_state().numpy().tobytes(),
        (kind, np.asarray(keys).tobytes(), *rest),
        random.getstate(),
    )


@cache
def unbroken(name: str) -> Run:
    before = global_randomness()
    cell, checkpoints = Cell(spec(config(name)), NOWHERE), []
    while not cell.is_finished:
        cell.run_stage()
        checkpoints.append(cell.checkpoint())
    return Run(
        cell.spec,
        cell.records,
        checkpoints,
        [cell.stream.batches_in(t) for t in range(cell.info.stages)],
        global_randomness() == before,
    )


def resumed(name: str, stage: int) -> Cell:
    """Return a new cell as the checkpoint after that stage left the old one."""
    cell = Cell(spec(config(name)), NOWHERE)
    cell.resume(unbroken(name).checkpoints[stage - 1])
    return cell


def opened(checkpoint: bytes) -> dict[str, Any]:
    content = torch.load(io.BytesIO(checkpoint), weights_only=True)
    assert isinstance(content, dict)
    return content


def assert_equal_bits(one: Any, other: Any, where: str) -> None:
    """Compare two trees of tensors and plain values."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal_bits(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal_bits(a, b, f"{where}[{i}]")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    else:
        assert one == other, where


def classifiers(name: str) -> list[str]:
    """Return the classifiers that the method's config accepts."""
    accepted = []
    for classifier in get_args(get_type_hints(MethodConfig)["classifier"]):
        try:
            config(name, classifier=classifier)
        except SpecError:
            continue
        accepted.append(classifier)
    return accepted


def noise(side: int) -> Dataset:
    """Return a dataset of random images: four classes in two stages, two images of each."""

    def read(root: Path, download: bool) -> Splits:
        rng = np.random.default_rng(side)

        def split() -> Images:
            pixels = rng.integers(0, 256, (8, side, side, 3), dtype=np.uint8)
            return Images(pixels, np.arange(8, dtype=np.int64) % 4)

        return Splits(split(), split())

    return Dataset(
        name="noise",
        about="random images",
        classes=4,
        stages=2,
        side=side,
        digest=digest(read(NOWHERE, False)),
        mean=(0.5, 0.5, 0.5),
        std=(0.3, 0.3, 0.3),
        read=read,
        is_embedded=True,
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_cell_ends_with_an_accuracy_for_every_class(name: str) -> None:
    records = unbroken(name).records
    assert [r.stage for r in records] == [1, 2, 3, 4, 5]
    assert [len(r.accuracies) for r in records] == [2, 4, 6, 8, 10]
    assert all(0 <= a <= 1 for r in records for a in r.accuracies)


@pytest.mark.parametrize("name", METHODS)
def test_a_cell_learns_better_than_chance(name: str) -> None:
    chance = sum(1 / len(r.accuracies) for r in unbroken(name).records) / 5
    # Two standard deviations of guessing at 14 images of each class, after each of five stages.
    assert summary(unbroken(name).spec, unbroken(name).records)["A"] > chance + 0.05


@pytest.mark.parametrize("name", METHODS)
def test_accuracies_follow_from_the_confusion_of_all_images_tested(name: str) -> None:
    held_out = [14, 15, 14, 14, 14, 15, 14, 14, 14, 14]
    for record in unbroken(name).records:
        assert all(len(row) == 10 for row in record.confusion)
        for rank, (row, accuracy) in enumerate(
            zip(record.confusion, record.accuracies, strict=True)
        ):
            assert sum(row) in held_out
            assert accuracy == row[rank] / sum(row)


@pytest.mark.parametrize("name", WITH_CENTRES)
def test_centres_never_predict_a_class_not_seen_yet(name: str) -> None:
    for record in unbroken(name).records:
        seen = len(record.accuracies)
        assert all(not any(row[seen:]) for row in record.confusion)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", METHODS)
def test_a_stage_after_a_resumption_ends_with_the_same_bits(name: str, stage: int) -> None:
    """Each stage from each checkpoint; by induction, the end from any of them."""
    cell = resumed(name, stage)
    record, expected = cell.run_stage(), unbroken(name).records[stage]
    assert record.confusion == expected.confusion
    assert record.accuracies == expected.accuracies
    assert record.trained_images == expected.trained_images
    state = opened(unbroken(name).checkpoints[stage])["method"]
    assert_equal_bits(opened(cell.checkpoint())["method"], state, name)


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_cell_knows_its_past(name: str) -> None:
    run = unbroken(name)
    assert resumed(name, 3).records == run.records[:3]
    assert resumed(name, 5).is_finished


@pytest.mark.parametrize("name", METHODS)
def test_a_finished_cell_predicts_the_same_after_a_resumption(name: str) -> None:
    cell, record = resumed(name, 5), unbroken(name).records[-1]
    correct = 0
    predictor = cell.predictor().eval()
    with torch.inference_mode():
        for images, labels in cell.stream.evaluation(10):
            correct += int((predictor(images) == labels).sum())
    assert correct == sum(row[i] for i, row in enumerate(record.confusion))


@pytest.mark.parametrize("name", METHODS)
def test_the_memory_keeps_to_its_size_and_to_classes_seen(name: str) -> None:
    cell = Cell(unbroken(name).spec, NOWHERE)
    for stage, checkpoint in enumerate(unbroken(name).checkpoints, start=1):
        memory = opened(checkpoint)["method"]["memory"]
        assert len(memory["indices"]) == len(set(memory["indices"].tolist())) <= MEMORY_SIZE
        assert torch.equal(cell.stream.fetch(memory["indices"]).labels, memory["labels"])
        assert (memory["labels"] < 2 * stage).all()


@pytest.mark.parametrize("name", METHODS)
def test_training_leaves_global_randomness_alone(name: str) -> None:
    assert unbroken(name).has_left_globals_alone


@pytest.mark.parametrize(("name", "classifier"), [(n, c) for n in METHODS for c in classifiers(n)])
def test_every_classifier_leaves_global_randomness_alone(name: str, classifier: str) -> None:
    cell = Cell(spec(config(name, classifier=classifier)), NOWHERE)
    cell.method.begin_stage(0)
    cell.method.remember(next(cell.stream.batches(0)))
    before = global_randomness()
    cell.predictor()
    assert global_randomness() == before


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_costs_what_the_paper_allows(name: str) -> None:
    run = unbroken(name)
    in_last_stage = run.records[4].trained_images - run.records[3].trained_images
    assert in_last_stage == TRAINED_IMAGES.get(name, 160) * run.batches[4]


@pytest.mark.parametrize("name", METHODS)
def test_a_checkpoint_of_another_cell_is_refused(name: str) -> None:
    cell = Cell(spec(config(name), seed=4), NOWHERE)
    with pytest.raises(CheckpointError, match=f"its cell_id is .*, not {cell.spec.cell_id}"):
        cell.resume(unbroken(name).checkpoints[0])
    assert cell.records == []


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
@pytest.mark.parametrize("name", METHODS)
def test_a_truncated_checkpoint_is_refused(name: str, share: float) -> None:
    whole = unbroken(name).checkpoints[0]
    cell = Cell(spec(config(name)), NOWHERE)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        cell.resume(whole[: int(len(whole) * share)])
    assert cell.records == []


class _Harmful:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("a checkpoint ran code",))


def foreign_files() -> dict[str, bytes]:
    def saved(content: object) -> bytes:
        buffer = io.BytesIO()
        torch.save(content, buffer)
        return buffer.getvalue()

    return {
        "text": b"not a checkpoint",
        "pickle": pickle.dumps(_Harmful()),
        "code": saved(_Harmful()),
        "list": saved([1, 2, 3]),
        "other format": saved({"format": 0}),
        "format alone": saved({"format": 1}),
    }


@pytest.mark.parametrize("kind", foreign_files())
def test_a_foreign_file_is_refused_as_a_checkpoint(kind: str) -> None:
    cell = Cell(spec(config(METHODS[0])), NOWHERE)
    with pytest.raises(CheckpointError):
        cell.resume(foreign_files()[kind])
    assert cell.records == []


@pytest.mark.parametrize("name", METHODS)
def test_a_loss_that_is_no_number_ends_the_cell_with_stage_and_step(name: str) -> None:
    cell = resumed(name, 1)
    with torch.no_grad():
        next(cell.method.net["backbone"].parameters()).fill_(torch.nan)
    with pytest.raises(DivergedError, match="loss was nan at training step 1 of stage 2"):
        cell.run_stage()
    assert len(cell.records) == 1


@pytest.mark.parametrize("name", METHODS)
def test_weights_that_are_no_numbers_end_the_cell_before_it_is_tested(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = resumed(name, 1)

    def spoil() -> None:
        """Stand in for a last step with a finite loss and a gradient too large."""
        with torch.no_grad():
            next(cell.method.net["backbone"].parameters()).fill_(torch.nan)

    monkeypatch.setattr(cell.method, "end_stage", spoil)
    with pytest.raises(DivergedError, match="stage 2"):
        cell.run_stage()
    assert len(cell.records) == 1


@pytest.mark.parametrize("name", METHODS)
def test_a_cell_without_memory_ends_too(name: str) -> None:
    small = config(name, updates_per_batch=1)
    cell = Cell(spec(small, memory_size=0), NOWHERE)
    record = cell.run_stage()
    assert len(record.accuracies) == 2
    assert cell.method.memory.filled == 0


@pytest.mark.parametrize(("side", "pool"), [(16, "grid"), (32, "global"), (84, "grid")])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_images_of_any_side(
    name: str, side: int, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = "global" if name in ONLY_GLOBAL else pool
    monkeypatch.setitem(DATASETS, "noise", noise(side))
    small = config(name, batch_size=2, memory_batch_size=2, updates_per_batch=1, feature_pool=pool)
    changes = {"dataset": "noise", "data_digest": DATASETS["noise"].digest, "memory_size": 3}
    cell = Cell(spec(small, protocol="test", stream_fraction=0.5, **changes), NOWHERE)
    while not cell.is_finished:
        cell.run_stage()
    assert len(cell.records[-1].accuracies) == 4


@pytest.mark.parametrize("name", METHODS)
def test_a_method_learns_with_shorter_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "noise", noise(16))
    if name in ONLY_FLOAT32:
        with pytest.raises(SpecError, match=f"{name}.precision must be float32"):
            config(name, precision="bfloat16")
        return
    small = config(name, batch_size=2, memory_batch_size=2, precision="bfloat16")
    changes = {"dataset": "noise", "data_digest": DATASETS["noise"].digest, "memory_size": 3}
    cell = Cell(spec(small, protocol="test", stream_fraction=0.5, **changes), NOWHERE)
    while not cell.is_finished:
        cell.run_stage()
    assert {p.dtype for p in cell.method.net.parameters()} == {torch.float32}
    images = torch.rand(2, 3, 16, 16)
    assert cell.method.net["backbone"](images).dtype == torch.float32


def test_a_cell_refuses_data_other_than_its_spec_names() -> None:
    wrong = spec(config(METHODS[0]), data_digest="0" * 64)
    with pytest.raises(SpecError, match="digest"):
        Cell(wrong, NOWHERE)
