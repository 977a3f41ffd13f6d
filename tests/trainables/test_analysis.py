"""The analyses of a trained cell, against what they mean written out plainly."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables.analysis import ANALYSES, Centres, Cka, Ood, Scree, Tsne, default_outliers
from oclgrid.trainables.datasets import DATASETS, data_root
from oclgrid.trainables.loop import Cell, CheckpointError
from oclgrid.trainables.maths.similarity import linear_cka
from oclgrid.trainables.outliers import OUTLIERS, load_outliers
from oclgrid.trainables.predictor import evaluating
from oclgrid.trainables.schema import build
from oclgrid.trainables.snapshots import Snapshots, spaced
from oclgrid.trainables.stream import to_float

pytestmark = pytest.mark.usefixtures("one_thread")
FEW = 30
"""Images of a kind, where fewer do."""


class Trained:
    """A finished cell with the checkpoint of each stage."""

    def __init__(self, method: str, memory: int = 50) -> None:
        grid = {"dataset": "digits", "memory": memory, "orders": 1, "method": method}
        cells = {**grid, "stream_fraction": 0.08}
        (self.spec,) = parse_sweep({"sweep": "analysis", "cells": cells}, where="test").cells
        self.cell = Cell(self.spec, data_root())
        self.checkpoints: list[bytes] = []
        while not self.cell.is_finished:
            self.cell.run_stage()
            self.checkpoints.append(self.cell.checkpoint())

    def snapshots(self) -> Snapshots:
        return Snapshots(self.cell, lambda stage: self.checkpoints[stage - 1], data=Path("unused"))

    def plain_features(self, images: Tensor, stage: int = 5) -> Tensor:
        """Features of images by the cell as its checkpoint brings it back."""
        cell = Cell(self.spec, data_root())
        cell.resume(self.checkpoints[stage - 1])
        backbone = cell.method.net["backbone"]
        with evaluating(backbone):
            features: Tensor = backbone(images)
        return features


@pytest.fixture(scope="module")
def sdaf(one_thread: None) -> Trained:
    return Trained("sdaf")


@pytest.fixture(scope="module")
def scr(one_thread: None) -> Trained:
    return Trained("scr")


def test_a_cell_of_the_cka_table_compares_two_stages_on_the_images_that_arrived(
    sdaf: Trained,
) -> None:
    table = Cka(images=None).compute(sdaf.snapshots()).data["table"]
    assert (len(table), len(table[0])) == (4, 5)
    images = torch.cat([batch.images for batch in sdaf.cell.stream.batches(2)])
    earlier, later = (sdaf.plain_features(images, stage) for stage in (1, 2))
    assert table[0][2] == pytest.approx(linear_cka(earlier, later), abs=1e-5)


def test_seen_is_the_mean_below_the_steps_of_the_cka_table(sdaf: Trained) -> None:
    found = Cka().compute(sdaf.snapshots())
    seen = [v for t, row in enumerate(found.data["table"]) for s, v in enumerate(row) if s <= t]
    assert len(seen) == 10
    assert found.numbers["seen"] == pytest.approx(sum(seen) / 10)


def slow_distances(x_NKD: Tensor, exemplars_MKD: Tensor, labels_M: Tensor) -> list[float]:
    """Eq. 13 and 14 written out: the distance of each image to its nearest centre."""
    inverse = np.linalg.pinv(
        np.cov(exemplars_MKD.flatten(0, 1).numpy().T), rcond=1e-5, hermitian=True
    )
    centres = [exemplars_MKD[labels_M == c].mean(dim=0).numpy() for c in labels_M.unique()]

    def distance(x_KD: npt.NDArray[np.float64], centre_KD: npt.NDArray[np.float64]) -> float:
        gaps = x_KD - centre_KD
        return sum(math.sqrt(max(0.0, d @ inverse @ d)) for d in gaps) / len(gaps)

    return [min(distance(x, centre) for centre in centres) for x in x_NKD.numpy()]


@pytest.mark.parametrize("method", ["sdaf", "scr"])
def test_outliers_are_scored_by_their_distance_to_the_nearest_centre(
    method: str, request: pytest.FixtureRequest
) -> None:
    """SDAF averages over four rotations; SCR looks once, at features of unit length."""
    trained: Trained = request.getfixturevalue(method)
    turns = 4 if method == "sdaf" else 1

    def features(images: Tensor) -> Tensor:
        turned = [trained.plain_features(torch.rot90(images, k, (2, 3))) for k in range(turns)]
        stacked = torch.stack(turned, dim=1).double()
        return torch.nn.functional.normalize(stacked, dim=2) if method == "scr" else stacked

    memory = trained.cell.method.memory
    exemplars = features(trained.cell.stream.fetch(memory.indices[: memory.filled]).images)
    labels = memory.labels[: memory.filled]
    strange = load_outliers("photos", data_root(), side=16)
    strange_images = to_float(spaced(strange, FEW), torch.device("cpu"))
    tested = torch.cat([images for images, _ in trained.cell.stream.evaluation(10)])
    inner = slow_distances(features(tested), exemplars, labels)
    outer = slow_distances(features(strange_images), exemplars, labels)
    pairs = [(o > i) + (o == i) / 2 for o in outer for i in inner]
    found = Ood(images=FEW).compute(trained.snapshots()).numbers
    assert found["photos_memory"] == pytest.approx(sum(pairs) / len(pairs), abs=1e-3)
    assert found["photos"] != found["photos_memory"]


def test_features_may_stay_as_long_as_they_are(scr: Trained) -> None:
    as_classified, plain = (
        Ood(images=FEW, normalise=n).compute(scr.snapshots()).numbers for n in ("method", "never")
    )
    assert as_classified != plain


def test_a_cell_without_memory_has_no_centres_of_it() -> None:
    trained = Trained("ewc", memory=0)
    assert set(Ood(images=FEW).compute(trained.snapshots()).numbers) == {"photos"}


def test_a_roc_curve_runs_from_corner_to_corner(sdaf: Trained) -> None:
    false, true = Ood(images=FEW).compute(sdaf.snapshots()).data["curves"]["photos"]
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    assert false == sorted(false)
    assert true == sorted(true)


def test_tsne_places_as_many_of_each_kind_as_asked_for_and_repeats(sdaf: Trained) -> None:
    first, second = (Tsne(images=50).compute(sdaf.snapshots()) for _ in range(2))
    assert len(first.data["inliers"]) == len(first.data["outliers"]) == 50
    assert first.data["outlier_set"] == "photos"
    assert first == second


def test_scree_keeps_the_largest_eigenvalues_of_test_features(sdaf: Trained) -> None:
    found = Scree(count=7).compute(sdaf.snapshots())
    images = torch.cat([images for images, _ in sdaf.cell.stream.evaluation(10)])
    features = sdaf.plain_features(images).double().numpy()
    features /= np.linalg.norm(features, axis=1).max()
    expected = np.linalg.eigvalsh(np.cov(features.T))[::-1][:7]
    assert found.data["eigenvalues"] == pytest.approx(expected.tolist(), rel=1e-4)
    assert 1 <= found.numbers["directions"] <= 160


def rotated(trained: Trained, images: Tensor) -> npt.NDArray[np.float64]:
    """Features of all four rotations, N x 4 x 160."""
    turned = [torch.rot90(images, k, dims=(2, 3)) for k in range(4)]
    return np.stack([trained.plain_features(t).double().numpy() for t in turned], axis=1)


def nearest(
    points: npt.NDArray[np.float64], centres: npt.NDArray[np.float64], inverse: npt.NDArray[Any]
) -> list[int]:
    """Class of each image by the mean distance over rotations, written out (Eq. 14)."""
    found = []
    for point in points:
        gaps = point - centres  # C x K x D
        far = np.sqrt(np.einsum("ckd,de,cke->ck", gaps, inverse, gaps)).mean(axis=1)
        found.append(int(far.argmin()))
    return found


def test_centres_of_exemplars_and_of_other_images_are_compared_on_test_images(
    sdaf: Trained,
) -> None:
    found = Centres(images=FEW).compute(sdaf.snapshots()).numbers
    stream, memory = sdaf.cell.stream, sdaf.cell.method.memory
    kept = memory.indices[: memory.filled].tolist()
    arrived = [i for s in range(5) for i in stream.arrivals(s)[:FEW].tolist()]
    other = [i for i in arrived if i not in kept]
    assert other != arrived
    peers = []
    for c in range(10):
        arrivals = stream.arrivals(c // 2)
        mine = [i for i in arrivals[stream.labels(arrivals) == c].tolist() if i not in kept]
        count = int((stream.labels(torch.tensor(kept)) == c).sum())
        if count < len(mine):
            mine = [mine[i * len(mine) // count] for i in range(count)]
        peers += mine
    test, ranks = (torch.cat(parts) for parts in zip(*stream.evaluation(10), strict=True))
    for name, positions in (("exemplars", kept), ("stream", other), ("peers", peers)):
        batch = stream.fetch(torch.tensor(positions))
        points, labels = rotated(sdaf, batch.images), batch.labels.numpy()
        centres = np.stack([points[labels == c].mean(axis=0) for c in range(10)])
        inverse = np.linalg.pinv(np.cov(points.reshape(-1, 160).T), rcond=1e-5, hermitian=True)
        for distance, form in (("euclid", np.eye(160)), ("mahalanobis", inverse)):
            answers = np.array(nearest(rotated(sdaf, test), centres, form))
            expected = np.mean([(answers[ranks == c] == c).mean() for c in range(10)])
            assert found[f"test_by_{name}_{distance}"] == pytest.approx(expected)
    assert set(found) == {
        f"{kind}_{distance}"
        for kind in (
            "test_by_exemplars",
            "test_by_stream",
            "test_by_peers",
            "exemplars_by_exemplars",
        )
        for distance in ("euclid", "mahalanobis")
    }


def test_without_a_memory_there_are_centres_of_the_stream_only() -> None:
    found = Centres(images=FEW).compute(Trained("ewc", memory=0).snapshots()).numbers
    assert set(found) == {"test_by_stream_euclid", "test_by_stream_mahalanobis"}


def test_features_are_computed_once(sdaf: Trained) -> None:
    snapshots = sdaf.snapshots()
    assert snapshots.test() is snapshots.test()
    assert snapshots.arrived(1, FEW) is snapshots.arrived(1, FEW)
    assert snapshots.arrived(1, FEW) is not snapshots.arrived(1, FEW, turn=1)


def test_the_images_of_a_stage_are_those_of_its_batches_in_order(sdaf: Trained) -> None:
    batches = [batch.indices for batch in sdaf.cell.stream.batches(3)]
    assert torch.equal(sdaf.cell.stream.arrivals(3), torch.cat(batches))


def test_a_missing_or_foreign_checkpoint_is_named(sdaf: Trained) -> None:
    lost = Snapshots(sdaf.cell, lambda stage: None, data=data_root())
    with pytest.raises(CheckpointError, match="of stage 1 is missing or damaged"):
        Cka().compute(lost)
    shifted = Snapshots(sdaf.cell, lambda stage: sdaf.checkpoints[stage], data=data_root())
    with pytest.raises(CheckpointError, match="is not of stage 1"):
        Cka().compute(shifted)


def test_spaced_items_come_from_the_whole_range() -> None:
    items = np.arange(10)
    assert spaced(items, 3).tolist() == [0, 3, 6]
    assert spaced(items, 10).tolist() == spaced(items, 99).tolist() == items.tolist()
    assert spaced(items, None).tolist() == items.tolist()


@pytest.mark.parametrize("name", ANALYSES)
def test_every_setting_changes_the_digest(name: str) -> None:
    kind = ANALYSES[name]
    changed = {"images": 77, "outliers": "mnist", "seed": 5, "count": 9, "normalise": "never"}
    settings = kind().settings
    digests = {build(kind, {f: changed[f]}, where="test").digest for f in settings}
    assert len(digests | {kind().digest}) == 1 + len(settings)
    assert kind().digest == kind().digest


def test_every_dataset_has_outliers_that_are_known() -> None:
    for name in DATASETS:
        assert set(default_outliers(name)) <= set(OUTLIERS)
