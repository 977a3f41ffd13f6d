import copy
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest
import slow_twins
import torch
from slow_twins import SMALL, clone, gradients, move, second_stage, toy_cell
from torch import Tensor, nn

from oclgrid.trainables.configs.dvc import DvcConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import SCR
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import ViewParameters, apply, draw

assert_same = partial(slow_twins.assert_same, atol=1e-7, rtol=1e-5)


def cell(memory_size: int = 12, **changes: Any) -> Cell:
    return doubled(toy_cell(DvcConfig(**{**SMALL, **changes}), memory_size))


def doubled(one: Cell) -> Cell:
    """Compute in double precision: rounding would grow over two steps."""
    fetch = one.stream.fetch

    def in_double(indices: Tensor) -> Batch:
        return replace(found := fetch(indices), images=found.images.double())

    one.stream.fetch = in_double  # type: ignore[method-assign]  # the same images, wider
    one.method.net.double()
    return one


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    """Return a cell whose memory holds eight old and four new images, and the next batch."""
    return second_stage(cell(**changes), old=2, new=1)


def softmax(z: Tensor) -> Tensor:
    return torch.exp(z) / torch.exp(z).sum()


def slow_loss(net: nn.ModuleDict, batch: Batch, views: Tensor, weight: float = 2.0) -> Tensor:
    """L_ce + L_mi + w L_dl of 6.7, image by image."""
    n = len(batch)
    logits = net["softmax"](net["backbone"](torch.cat([batch.images, views])))
    joint = [net["joint"](torch.cat([logits[i], logits[n + i]])) for i in range(n)]
    p, p_view, p_joint = ([softmax(z) for z in part] for part in (logits[:n], logits[n:], joint))
    labels = batch.labels.tolist()
    ce = [-torch.log(row[y]) for part in (p, p_view) for row, y in zip(part, labels, strict=True)]
    means = [torch.stack(part).mean(0) for part in (p, p_view, p_joint)]
    mi = [sum(u * torch.log(u) for u in mean) for mean in means]
    pairs = [(p_joint[i], part[i]) for part in (p, p_view) for i in range(n)]
    dl = [abs(a - b) for q, single in pairs for a, b in zip(q, single, strict=True)]
    return sum(ce) / len(ce) + sum(mi) / 3 + weight * sum(dl) / len(dl)  # type: ignore[return-value]  # sums of tensors


def shared_view(images: Tensor, generator: torch.Generator) -> Tensor:
    """One draw for all images; colours always jittered."""
    series = replace(SCR, jitter=1.0)
    one = draw(series, 1, height=16, width=16, generator=generator)
    rows = {f.name: getattr(one, f.name) for f in fields(one)}
    views = [apply(x[None], ViewParameters(**rows)) for x in images]
    return torch.cat(views)


def own_view(images: Tensor, generator: torch.Generator) -> Tensor:
    series = replace(SCR, jitter=1.0)
    return apply(images, draw(series, len(images), height=16, width=16, generator=generator))


def sizes(net: nn.ModuleDict, batch: Batch, views: Tensor) -> list[float]:
    """L1 norm of each image's gradient by the last layer, all images and views in one pass."""
    features = net["backbone"](torch.cat([batch.images, views]))[: len(batch)]
    found = []
    for h, y in zip(features, batch.labels, strict=True):
        error = softmax(net["softmax"](h))
        error[y] -= 1
        found.append(float(torch.outer(error, h).abs().sum()))
    return found


def slow_step(
    net: nn.ModuleDict,
    of: Cell,
    incoming: Batch,
    *,
    view: Tensor,
    draws: torch.Generator,
    make: Any,
    views: torch.Generator,
    weight: float = 2.0,
) -> list[int]:
    """Take one step; return the images replayed, in falling score."""
    along = gradients(net, slow_loss(net, incoming, view, weight))
    memory = of.method.memory
    slots = torch.randperm(memory.filled, generator=draws)[:9]
    subset = of.stream.fetch(memory.indices[slots])
    subset_views = make(subset.images, views)
    virtual = copy.deepcopy(net)
    move(virtual, along, RATE)
    with torch.no_grad():
        after, now = sizes(virtual, subset, subset_views), sizes(net, subset, subset_views)
    growth = [a - b for a, b in zip(after, now, strict=True)]
    best = sorted(range(9), key=lambda i: -growth[i])[:4]
    replay = of.stream.fetch(subset.indices[best])
    more = gradients(net, slow_loss(net, replay, subset_views[best], weight))
    move(net, [a + b for a, b in zip(along, more, strict=True)], RATE)
    return replay.indices.tolist()


RATE = 0.02


def ready(**changes: Any) -> tuple[Cell, Batch]:
    return in_second_stage(
        **{"candidates": 9, "distance_weight": 2.0, "learning_rate": RATE, **changes}
    )


@pytest.mark.parametrize("weight", [2.0, 4.0])
def test_steps_are_those_of_a_slow_twin_with_one_view_of_the_incoming_batch(weight: float) -> None:
    one, incoming = ready(distance_weight=weight)
    twin, draws = copy.deepcopy(one.method.net), clone(one.method.memory_rng)
    views = clone(one.method.view_rng)
    one.method.receive(incoming)
    view = shared_view(incoming.images, views)
    for _ in range(2):
        expected = slow_step(
            twin,
            one,
            incoming,
            view=view,
            draws=draws,
            make=shared_view,
            views=views,
            weight=weight,
        )
        replay = one.method.retrieve(incoming)
        assert replay is not None
        assert replay.indices.tolist() == expected
        one.method.learn(incoming, replay)
    assert_same(one.method.net, twin)
    assert one.method.trained_images == 2 * 2 * 8


def test_views_can_be_drawn_for_each_image_and_each_step() -> None:
    one, incoming = ready(view_draw="image")
    one.method.receive(incoming)
    twin, draws = copy.deepcopy(one.method.net), clone(one.method.memory_rng)
    views = clone(one.method.view_rng)
    for _ in range(2):
        view = own_view(incoming.images, views)
        expected = slow_step(
            twin, one, incoming, view=view, draws=draws, make=own_view, views=views
        )
        replay = one.method.retrieve(incoming)
        assert replay is not None
        assert replay.indices.tolist() == expected
        one.method.learn(incoming, replay)
    assert_same(one.method.net, twin)


def test_the_first_batch_is_trained_on_alone() -> None:
    one = cell(distance_weight=2.0)
    one.method.begin_stage(0)
    incoming, twin = next(one.stream.batches(0)), copy.deepcopy(one.method.net)
    view = shared_view(incoming.images, clone(one.method.view_rng))
    one.method.receive(incoming)
    replay = one.method.retrieve(incoming)
    assert replay is None
    one.method.learn(incoming, replay)
    loss = slow_loss(twin, incoming, view)
    assert float(one.method.losses[-1]) == pytest.approx(float(loss.detach()), abs=1e-9)
    move(twin, gradients(twin, loss))
    assert_same(one.method.net, twin)


def test_the_memory_holds_images_and_not_their_views() -> None:
    one, incoming = ready()
    one.method.receive(incoming)
    one.method.remember(incoming)
    held = one.method.memory.indices
    assert torch.equal(one.stream.fetch(held).labels, one.method.memory.labels)


def test_the_net_that_joins_predictions_is_as_wide_as_stated() -> None:
    joint = cell().method.net["joint"]
    layers = [m for m in joint.modules() if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in layers] == [(20, 128), (128, 10)]
    assert not any(isinstance(m, nn.BatchNorm1d) for m in joint.modules())


def test_prediction_looks_at_the_plain_image_alone() -> None:
    one, _ = ready()
    predictor = one.predictor().eval()
    images = next(one.stream.evaluation(4))[0].double()
    net = copy.deepcopy(one.method.net).eval()
    with torch.inference_mode():
        assert torch.equal(predictor(images), net["softmax"](net["backbone"](images)).argmax(1))


@pytest.mark.parametrize(
    ("dataset", "weight"), [("cifar10", 2.0), ("cifar100", 4.0), ("miniimagenet", 4.0)]
)
def test_the_weight_of_the_distance_follows_the_dataset(dataset: str, weight: float) -> None:
    assert DvcConfig.for_dataset(dataset) == {"distance_weight": weight}


def test_jitter_is_always_applied() -> None:
    assert DvcConfig().views == replace(SCR, jitter=1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": 3}, "dvc.candidates must not be below memory_batch_size, got 3"),
        ({"distance_weight": -0.5}, r"dvc.distance_weight must lie in \[0, 1000\], got -0.5"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        cell(**changes)
