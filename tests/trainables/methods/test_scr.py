import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import slow_twins
import torch
from slow_twins import SMALL, descend, second_stage, toy_cell
from torch import Tensor, nn

from oclgrid.trainables.configs.scr import ScrConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.series import SCR, Colours
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import view

assert_same = partial(slow_twins.assert_same, atol=1e-5, rtol=1e-5)


def cell(**changes: Any) -> Cell:
    return toy_cell(ScrConfig(**{**SMALL, **changes}), 10)


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    return second_stage(cell(**changes), old=None, new=0)


def slow_loss(
    net: nn.ModuleDict, images: Tensor, others: Tensor, labels: list[int], temperature: float
) -> Tensor:
    """SupCon anchor by anchor, over images and their views, which pass the network apart."""
    z = []
    for part in (images, others):
        for row in net["contrastive"](net["backbone"](part)):
            z.append(row / row.square().sum().sqrt())
    y = labels * 2
    total = torch.zeros(())
    for a in range(len(z)):
        rest = [b for b in range(len(z)) if b != a]
        below = sum(torch.exp(z[a] @ z[b] / temperature) for b in rest)
        positives = [p for p in rest if y[p] == y[a]]
        logs = [z[a] @ z[p] / temperature - torch.log(torch.as_tensor(below)) for p in positives]
        total = total - sum(logs) / len(positives)
    return total / len(z)


@pytest.mark.parametrize("colours", ["torchvision", "kornia"])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_a_step_contrasts_images_with_one_view_of_each(
    temperature: float, colours: Colours
) -> None:
    one, incoming = in_second_stage(temperature=temperature, colours=colours)
    replay, twin = one.method.retrieve(incoming), copy.deepcopy(one.method.net)
    assert replay is not None
    one.method.learn(incoming, replay)
    images = torch.cat([replay.images, incoming.images])
    others = view(SCR, images, one.spec.generator("views", 1), colours=colours)
    labels = [*replay.labels.tolist(), *incoming.labels.tolist()]
    loss = slow_loss(twin, images, others, labels, temperature)
    descend(twin, loss)
    assert float(one.method.losses[-1]) == pytest.approx(float(loss.detach()), rel=1e-4)
    assert_same(one.method.net, twin)


def test_the_first_batch_is_not_trained_on() -> None:
    one = cell()
    one.method.begin_stage(0)
    incoming, before = next(one.stream.batches(0)), copy.deepcopy(one.method.net)
    replay = one.method.retrieve(incoming)
    assert replay is None
    one.method.learn(incoming, replay)
    assert_same(one.method.net, before)
    assert one.method.trained_images == 0
    assert one.method.losses == []


def test_views_are_made_by_the_configured_series() -> None:
    still = replace(
        SCR, crop_min=1.0, flip=0.0, brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0, grey=0.0
    )
    one, incoming = in_second_stage(views=still)
    same, other = one.method.views(incoming.images)  # type: ignore[attr-defined]  # Scr's own
    assert torch.equal(same, incoming.images)
    # A crop of the whole image may still change its shape, so look at what cannot change.
    assert other.shape == same.shape
    assert in_second_stage()[0].method.config.views == SCR


@pytest.mark.usefixtures("double_precision")
def test_a_review_steps_through_the_memory_at_a_tenth_of_the_rate() -> None:
    one, _ = in_second_stage(review=True)
    twin, memory = copy.deepcopy(one.method.net), one.method.memory
    one.method.end_stage()
    order = torch.randperm(10, generator=one.spec.generator("memory", 1))
    views = one.spec.generator("views", 1)
    for start in (0, 4):  # The last two of ten fill no batch of four.
        batch = one.stream.fetch(memory.indices[order[start : start + 4]])
        others = view(SCR, batch.images, views)
        loss = slow_loss(twin, batch.images, others, batch.labels.tolist(), 0.1)
        descend(twin, loss, rate=0.01)
    assert_same(one.method.net, twin)
    assert len(one.method.losses) == 2


def test_there_is_no_review_unless_asked_for() -> None:
    one, _ = in_second_stage()
    before = copy.deepcopy(one.method.net)
    one.method.end_stage()
    assert_same(one.method.net, before)


def test_the_head_is_as_wide_as_the_features() -> None:
    head = cell().method.net["contrastive"]
    assert sum(p.numel() for p in head.parameters()) == 46_368


def test_classes_are_the_nearest_mean_of_unit_features_of_the_backbone() -> None:
    one, _ = in_second_stage()
    method = one.method
    predictor = method.predictor().eval()
    with torch.inference_mode():
        images, _ = next(one.stream.evaluation(4))
        found = predictor(images).tolist()
        backbone = method.net["backbone"].eval()
        centres = []
        for c in range(2):
            own = method.memory.indices[method.memory.labels == c]
            rows = [r / r.norm() for r in backbone(one.stream.fetch(own).images).double()]
            centre = torch.stack(rows).mean(0)
            centres.append(centre / centre.norm())
        for row, prediction in zip(backbone(images).double(), found, strict=True):
            distances = [math.dist((row / row.norm()).tolist(), c.tolist()) for c in centres]
            assert prediction == distances.index(min(distances))
