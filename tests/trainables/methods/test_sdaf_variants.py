import copy
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from slow_twins import assert_same, cosine, gradients, move, second_stage, toy_cell
from torch import Tensor, nn

from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.configs.sdaf_align import SdafAlignConfig
from oclgrid.trainables.configs.sdaf_euclid import SdafEuclidConfig
from oclgrid.trainables.configs.sdaf_identity import SdafIdentityConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.predictor import CentrePredictor
from oclgrid.trainables.series import LONG, SHORT
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import view


def cell(config: SdafConfig, **changes: Any) -> Cell:
    method = replace(config, batch_size=2, memory_batch_size=2, **changes)
    return toy_cell(method, 4, stream_fraction=0.05)


def in_second_stage(config: SdafConfig, **changes: Any) -> tuple[Cell, Batch, Batch]:
    """Return a cell, the incoming batch and a replay, with old weights above new ones."""
    one, incoming = second_stage(cell(config, **changes), old=1, new=0)
    head = one.method.net["softmax"]
    assert isinstance(head, nn.Linear)
    with torch.no_grad():  # so that gamma is 1 and all views are kept
        head.weight[: head.out_features // 5] += 0.1
    replay = one.method.retrieve(incoming)
    assert replay is not None
    return one, incoming, replay


def slow_loss(
    of: Cell,
    net: nn.ModuleDict,
    batches: Sequence[Batch],
    *,
    k: int,
    is_extended: bool,
    all_positive: bool = False,
) -> Tensor:
    """L_WABS with all views kept + 1.5 L_SS, view by view; views are (image, rotation, series)."""
    images = torch.cat([b.images for b in batches])
    labels = [y for b in batches for y in b.labels.tolist()]
    rotated = torch.stack([torch.rot90(x, j, dims=(1, 2)) for x in images for j in range(k)])
    generator = of.spec.generator("views", 1)
    both = torch.cat([view(series, rotated, generator) for series in (LONG, SHORT)])
    h = net["backbone"](both)
    z = net["projector"](h)
    p = net["predictor"](z)
    n = len(rotated)
    names = [(row // k, row % k, series) for series in range(2) for row in range(n)]
    classified, contrasted = [], []
    for v, (i, j, series) in enumerate(names):
        target = k * labels[i] + j if is_extended else labels[i]
        scores = net["softmax"](h[v])[: 4 * (k if is_extended else 1)]
        classified.append(torch.logsumexp(scores, 0) - scores[target])
        for w, (i2, j2, series2) in enumerate(names):
            is_pair = (i, j) == (i2, j2) and series != series2
            is_other = i == i2 and v != w
            if is_other if all_positive else is_pair:
                contrasted.append(-cosine(p[v], z[w].detach()))
    return torch.stack(classified).mean() + 1.5 * torch.stack(contrasted).mean()


def assert_step(of: Cell, incoming: Batch, replay: Batch, **options: Any) -> None:
    """Take the step both ways and compare loss and all that the network holds."""
    twin = copy.deepcopy(of.method.net)
    of.method.learn(incoming, replay)
    loss = slow_loss(of, twin, [incoming, replay], **options)
    assert float(of.method.live["gamma"]) == 1
    expected = float(loss.detach())
    assert float(of.method.losses[-1]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    move(twin, gradients(twin, loss))
    assert_same(of.method.net, twin, atol=2e-5, rtol=1e-3)


def test_align_gives_every_rotation_the_label_of_its_image() -> None:
    one, incoming, replay = in_second_stage(SdafAlignConfig())
    assert_step(one, incoming, replay, k=4, is_extended=False)
    assert one.method.trained_images == 4 * 4 * 2


def test_align_has_one_output_for_each_class() -> None:
    head = cell(SdafAlignConfig()).method.net["softmax"]
    assert isinstance(head, nn.Linear)
    assert head.out_features == 10


def test_align_differs_from_sdaf_in_its_labels_alone() -> None:
    align = asdict(SdafAlignConfig())
    assert {**align, "name": "sdaf", "labels": "extended"} == asdict(SdafConfig())


def test_align_still_has_a_centre_for_each_rotation() -> None:
    one, _, _ = in_second_stage(SdafAlignConfig())
    predictor = one.predictor()
    assert isinstance(predictor, CentrePredictor)
    assert predictor.centres.shape[:2] == (4, 4)


def test_align_can_pull_all_views_of_an_image_together() -> None:
    one, incoming, replay = in_second_stage(SdafAlignConfig(), positives="image")
    assert_step(one, incoming, replay, k=4, is_extended=False, all_positive=True)


def test_sdaf_can_pull_all_views_of_an_image_together_too() -> None:
    one, incoming, replay = in_second_stage(SdafConfig(), positives="image")
    assert_step(one, incoming, replay, k=4, is_extended=True, all_positive=True)


def test_without_rotations_all_views_of_an_image_are_its_pair() -> None:
    one, incoming, replay = in_second_stage(SdafIdentityConfig(), positives="image")
    assert_step(one, incoming, replay, k=1, is_extended=True)


def test_align_can_predict_by_its_softmax() -> None:
    one, _, _ = in_second_stage(SdafAlignConfig(), classifier="softmax")
    one.method.begin_stage(0)
    predictor = one.predictor().eval()
    images, _ = next(one.stream.evaluation(2))
    backbone, head = (
        copy.deepcopy(one.method.net[part]).eval() for part in ("backbone", "softmax")
    )
    with torch.inference_mode():
        turned = [backbone(torch.rot90(images[:8], j, dims=(2, 3))) for j in range(4)]
        scores = torch.stack([head(h)[:, :2].log_softmax(1) for h in turned]).mean(0)
        assert torch.equal(predictor(images[:8]), scores.argmax(1))


def test_identity_takes_four_steps_without_rotations() -> None:
    config = SdafIdentityConfig()
    assert (config.rotation_count, config.updates_per_batch) == (1, 4)


def test_identity_trains_on_two_views_of_each_image() -> None:
    one, incoming, replay = in_second_stage(SdafIdentityConfig())
    assert_step(one, incoming, replay, k=1, is_extended=True)
    assert one.method.trained_images == 4 * 2
    head = one.method.net["softmax"]
    assert isinstance(head, nn.Linear)
    assert head.out_features == 10


def test_identity_has_one_centre_for_each_class_in_whitened_space() -> None:
    one, _, _ = in_second_stage(SdafIdentityConfig())
    predictor = one.predictor()
    assert isinstance(predictor, CentrePredictor)
    assert predictor.centres.shape[:2] == (4, 1)
    assert predictor.whitening.shape[0] == 160 > predictor.whitening.shape[1]


def test_identity_differs_from_sdaf_in_rotations_and_steps_alone() -> None:
    identity = asdict(SdafIdentityConfig())
    changed = {**identity, "name": "sdaf", "rotation_count": 4, "updates_per_batch": 1}
    assert changed == asdict(SdafConfig())


def test_euclid_shares_its_training_with_sdaf() -> None:
    plain, euclid = cell(SdafConfig()), cell(SdafEuclidConfig())
    assert plain.spec.training_id == euclid.spec.training_id
    assert plain.spec.cell_id != euclid.spec.cell_id


@pytest.mark.parametrize("config", [SdafAlignConfig(), SdafIdentityConfig()])
def test_the_other_ablations_train_networks_of_their_own(config: SdafConfig) -> None:
    assert cell(config).spec.training_id != cell(SdafConfig()).spec.training_id


def test_euclid_trains_the_very_same_network_as_sdaf_and_predicts_otherwise() -> None:
    plain, euclid = cell(SdafConfig()), cell(SdafEuclidConfig())
    for one in (plain, euclid):
        for stage in (0, 1):
            one.method.begin_stage(stage)
            for incoming, _ in zip(one.stream.batches(stage), range(3), strict=False):
                one.method.learn(incoming, one.method.retrieve(incoming))
                one.method.remember(incoming)
    weights = euclid.method.net.state_dict()
    assert all(torch.equal(v, weights[k]) for k, v in plain.method.net.state_dict().items())
    images, _ = next(plain.stream.evaluation(4, size=60))
    with torch.inference_mode():
        found = [one.predictor().eval()(images) for one in (plain, euclid)]
    assert not torch.equal(*found)


def test_euclid_can_take_its_training_from_sdaf() -> None:
    plain, euclid, adopting = (
        cell(c) for c in (SdafConfig(), SdafEuclidConfig(), SdafEuclidConfig())
    )
    plain.run_stage()
    assert adopting.adopt_stage(plain.checkpoint()).confusion == euclid.run_stage().confusion


def test_euclid_measures_plain_distances_between_plain_features() -> None:
    one, _, _ = in_second_stage(SdafEuclidConfig())
    predictor = one.predictor()
    assert isinstance(predictor, CentrePredictor)
    assert torch.equal(predictor.whitening, torch.eye(160, dtype=torch.float64))
    assert not predictor.normalise


def test_only_norms_in_the_heads_keep_projections_apart() -> None:
    """Without, all views project to nearly one direction, which is where Eq. 7 is at its least."""
    spreads = {}
    for norm in (False, True):
        one = toy_cell(SdafConfig(head_norm=norm), 20, stream_fraction=0.3)
        one.run_stage()
        live = {name: float(value) for name, value in one.method.live.items()}
        spreads[norm] = live["projection_spread"]
        assert -1 <= live["self_supervised_loss"] <= 0
    assert spreads[False] < 0.5
    assert spreads[True] > 0.9
