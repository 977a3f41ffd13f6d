import copy
from dataclasses import asdict
from typing import Any

import pytest
import torch
from slow_twins import SMALL, assert_same, gradients, move, second_stage, toy_cell
from torch import Tensor, nn

from oclgrid.trainables.configs.scl import SclConfig
from oclgrid.trainables.configs.scr import ScrConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.predictor import CentrePredictor
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import SCR
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import view


def cell(memory_size: int = 10, **changes: Any) -> Cell:
    return toy_cell(SclConfig(**{**SMALL, **changes}), memory_size)


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    return second_stage(cell(**changes), old=None, new=0)


def slow_loss(net: nn.ModuleDict, views: list[Tensor], labels: list[int], t: float) -> Tensor:
    """SupCon anchor by anchor; each set of views passes the network on its own."""
    z = [
        row / row.square().sum().sqrt()
        for part in views
        for row in net["contrastive"](net["backbone"](part))
    ]
    y, terms = labels * len(views), []
    for a in range(len(z)):
        rest = [b for b in range(len(z)) if b != a]
        below = torch.stack([z[a] @ z[b] / t for b in rest]).logsumexp(0)
        positives = [p for p in rest if y[p] == y[a]]
        terms.append(-torch.stack([z[a] @ z[p] / t - below for p in positives]).mean())
    return torch.stack(terms).mean()


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_a_step_contrasts_two_random_views_of_each_image(temperature: float) -> None:
    one, incoming = in_second_stage(temperature=temperature)
    replay, twin = one.method.retrieve(incoming), copy.deepcopy(one.method.net)
    assert replay is not None
    one.method.learn(incoming, replay)
    images = torch.cat([replay.images, incoming.images])
    generator = one.spec.generator("views", 1)
    views = [view(SCR, images, generator) for _ in range(2)]
    labels = [*replay.labels.tolist(), *incoming.labels.tolist()]
    loss = slow_loss(twin, views, labels, temperature)
    assert float(one.method.losses[-1]) == pytest.approx(float(loss.detach()), rel=1e-4)
    move(twin, gradients(twin, loss))
    assert_same(one.method.net, twin)
    assert one.method.trained_images == 16


def test_the_image_itself_is_not_in_the_loss() -> None:
    one, incoming = in_second_stage()
    passed: list[Tensor] = []
    one.method.net["backbone"].register_forward_pre_hook(lambda _, inputs: passed.append(inputs[0]))
    replay = one.method.retrieve(incoming)
    assert replay is not None
    one.method.learn(incoming, replay)
    images = torch.cat([replay.images, incoming.images])
    assert len(passed) == 2
    for views in passed:
        assert not any(torch.equal(a, b) for a, b in zip(views, images, strict=True))
    assert not torch.equal(*passed)


def test_the_first_batch_is_not_trained_on() -> None:
    one = cell()
    one.method.begin_stage(0)
    incoming, before = next(one.stream.batches(0)), copy.deepcopy(one.method.net)
    replay = one.method.retrieve(incoming)
    assert replay is None
    one.method.learn(incoming, replay)
    assert_same(one.method.net, before)
    assert one.method.trained_images == 0


def test_the_defaults_are_those_of_scr() -> None:
    assert {**asdict(SclConfig()), "name": "scr"} == asdict(ScrConfig())


def test_prediction_is_by_nearest_centre_of_unit_features() -> None:
    one, _ = in_second_stage()
    predictor = one.predictor()
    assert isinstance(predictor, CentrePredictor)
    assert predictor.normalise
    norms = predictor.centres[:2].norm(dim=-1)
    assert torch.allclose(norms, torch.ones_like(norms))


def test_a_softmax_is_refused_since_there_is_none() -> None:
    with pytest.raises(SpecError, match=r"scl\.classifier must be a nearest-centre one"):
        cell(classifier="softmax")


def test_a_temperature_near_zero_is_refused() -> None:
    with pytest.raises(SpecError, match=r"scl\.temperature must lie in \[0.001, 1000\], got 0.0"):
        cell(temperature=0.0)
