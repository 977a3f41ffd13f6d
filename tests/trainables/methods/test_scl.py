import copy
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.methods.scl import SclConfig
from oclgrid.trainables.methods.scr import ScrConfig
from oclgrid.trainables.predictor import CentrePredictor
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import SCR, view


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cell(memory_size: int = 10, **changes: Any) -> Cell:
    config = SclConfig(**{"batch_size": 4, "memory_batch_size": 4, **changes})
    spec = CellSpec(
        dataset="digits",
        data_digest=DATASETS["digits"].digest,
        memory_size=memory_size,
        class_order=0,
        seed=0,
        method=config,
        stream_fraction=0.1,
    )
    return Cell(spec, Path("/nonexistent"))


def gradients(net: nn.ModuleDict, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True))


def move(net: nn.ModuleDict, along: list[Tensor], rate: float = 0.1) -> None:
    """theta <- theta - rate * gradient, parameter by parameter."""
    with torch.no_grad():
        for parameter, gradient in zip(net.parameters(), along, strict=True):
            parameter.copy_(parameter - rate * gradient)


def assert_same(net: nn.ModuleDict, twin: nn.ModuleDict) -> None:
    for name, value in net.state_dict().items():
        assert torch.allclose(value, twin.state_dict()[name], atol=2e-5, rtol=1e-4), name


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    one = cell(**changes)
    one.method.begin_stage(0)
    for incoming in one.stream.batches(0):
        one.method.remember(incoming)
    one.method.begin_stage(1)
    return one, next(one.stream.batches(1))


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
