"""A cell whose training another cell has done takes over its stages and only tests them."""

from dataclasses import replace

import pytest
import torch

from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables.datasets import data_root
from oclgrid.trainables.loop import Cell, CheckpointError
from oclgrid.trainables.predictor import Predictor
from oclgrid.trainables.remembered import KnownFeatures
from oclgrid.trainables.spec import CellSpec

pytestmark = pytest.mark.usefixtures("one_thread")


def spec(method: str) -> CellSpec:
    grid = {"dataset": "digits", "memory": 50, "orders": 1, "method": method}
    (found,) = parse_sweep(
        {"sweep": "adoption", "cells": {**grid, "stream_fraction": 0.08}}, where="test"
    ).cells
    return found


@pytest.fixture(scope="module")
def donor(one_thread: None) -> list[bytes]:
    """Checkpoints of a trained SDAF cell, one per stage."""
    cell = Cell(spec("sdaf"), data_root())
    checkpoints = []
    while not cell.is_finished:
        cell.run_stage()
        checkpoints.append(cell.checkpoint())
    return checkpoints


def test_only_cells_with_equal_training_share_a_training_id() -> None:
    sdaf = spec("sdaf")
    assert spec("sdaf-euclid").training_id == sdaf.training_id
    assert spec("sdaf-align").training_id != sdaf.training_id
    assert spec("scl").training_id != spec("scr").training_id
    assert replace(sdaf, class_order=1).training_id != sdaf.training_id
    assert replace(sdaf, class_order=1).training_group_id == sdaf.training_group_id
    assert replace(sdaf, memory_size=51).training_group_id != sdaf.training_group_id


def test_adopted_stages_end_like_trained_ones(donor: list[bytes]) -> None:
    trained, adopted = (Cell(spec("sdaf-euclid"), data_root()) for _ in range(2))
    for content in donor:
        trained.run_stage()
        adopted.adopt_stage(content)
    assert [r.confusion for r in adopted.records] == [r.confusion for r in trained.records]
    assert adopted.is_finished


def test_features_of_test_images_are_computed_once_for_all_who_share_them(
    donor: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = KnownFeatures()
    alone, second = (Cell(spec("sdaf-euclid"), data_root()) for _ in range(2))
    first = Cell(spec("sdaf"), data_root())
    for content in donor:
        alone.adopt_stage(content)
        first.adopt_stage(content, known)
    monkeypatch.setattr(Predictor, "features", lambda *_: pytest.fail("computed again"))
    for content in donor:
        second.adopt_stage(content, known)
    for stage, record in enumerate(second.records):
        assert record.confusion == alone.records[stage].confusion
        _, saved = known.of(second.spec.training_id, stage, 0, lambda: torch.empty(0))
        assert record.inference_seconds > saved > 0  # what it costs by itself


def test_features_are_kept_of_one_training_and_within_limits() -> None:
    known, some = KnownFeatures(limit_bytes=800), torch.ones(100)
    assert known.of("a", 0, 0, lambda: some)[1] == 0.0
    assert known.of("a", 0, 1, lambda: some) == (some, 0.0)
    for batch in (0, 1):
        found, saved = known.of("a", 0, batch, lambda: 2 * some)
        assert torch.equal(found, some)
        assert saved > 0
    assert known.of("a", 1, 0, lambda: 2 * some)[1] == 0.0  # no room is left
    assert torch.equal(known.of("a", 1, 0, lambda: 3 * some)[0], 3 * some)
    assert torch.equal(known.of("b", 0, 0, lambda: 4 * some)[0], 4 * some)
    assert torch.equal(known.of("a", 0, 0, lambda: 5 * some)[0], 5 * some)


def test_training_can_go_on_after_adopted_stages(donor: list[bytes]) -> None:
    trained, mixed = (Cell(spec("sdaf-euclid"), data_root()) for _ in range(2))
    mixed.adopt_stage(donor[0])
    mixed.adopt_stage(donor[1])
    mixed.run_stage()
    for _ in range(3):
        trained.run_stage()
    assert mixed.records[-1].confusion == trained.records[-1].confusion


def test_a_checkpoint_of_another_training_or_stage_is_refused(donor: list[bytes]) -> None:
    with pytest.raises(CheckpointError, match="training_id"):
        Cell(spec("sdaf-align"), data_root()).adopt_stage(donor[0])
    with pytest.raises(CheckpointError, match="is not of stage 1"):
        Cell(spec("sdaf-euclid"), data_root()).adopt_stage(donor[1])


def test_the_classifier_of_a_stage_is_fitted_once(donor: list[bytes]) -> None:
    cell = Cell(spec("sdaf"), data_root())
    cell.adopt_stage(donor[0])
    first = cell.predictor()
    assert cell.predictor() is first
    cell.run_stage()
    later, anew = cell.predictor(), Cell(spec("sdaf"), data_root())
    anew.resume(cell.checkpoint())
    assert later is not first
    assert torch.equal(later.get_buffer("centres"), anew.predictor().get_buffer("centres"))
