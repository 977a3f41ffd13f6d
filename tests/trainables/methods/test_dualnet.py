import copy
from functools import partial
from typing import Any

import pytest
import slow_twins
import torch
from slow_twins import SMALL, clone, gradients, move, toy_cell
from torch import Tensor, nn

from oclgrid.trainables.configs.dualnet import DualnetConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import SCR
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import view

assert_same = partial(slow_twins.assert_same, atol=3e-5, rtol=1e-3)

SCALE = {"updates_per_batch": 2, "slow_rate": 0.002, "look_ahead": 0.5, "learning_rate": 0.02}
"""Slow steps large enough to show."""


def cell(memory_size: int = 8, **changes: Any) -> Cell:
    return toy_cell(DualnetConfig(**{**SMALL, **SCALE, **changes}), memory_size)


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    """Return a cell whose memory holds images with and without logits, and the next batch."""
    one = cell(**changes)
    one.method.begin_stage(0)
    old = one.stream.batches(0)
    for _ in range(2):
        one.method.remember(next(old))
    one.method.learn(next(old), None)
    one.method.end_stage()
    one.method.begin_stage(1)
    incoming = one.stream.batches(1)
    one.method.remember(next(incoming))
    return one, next(incoming)


def logits(net: nn.ModuleDict, images: Tensor) -> Tensor:
    """The modulated pass, block by block."""
    dual = net["backbone"]
    h = dual.slow.maps(images)
    m = dual.fast[0](images) * h[0]
    for fast, slow in zip(list(dual.fast)[1:], h[1:], strict=True):
        m = nn.functional.max_pool2d(fast(m), 2, ceil_mode=True) * slow
    found: Tensor = net["softmax"](m.flatten(2).mean(2))
    return found


def barlow(z1: Tensor, z2: Tensor) -> Tensor:
    n, width = z1.shape
    a, b = ((z - z.mean(0)) / z.var(0, unbiased=True).sqrt() for z in (z1, z2))
    c = sum(torch.outer(a[i], b[i]) for i in range(n)) / n
    target = torch.eye(width)
    weight = torch.where(target == 1, 1.0, 2e-3)
    loss: Tensor = (weight * (c - target) ** 2).sum()
    return loss


def cross_entropy(z: Tensor, labels: Tensor) -> Tensor:
    rows = zip(z, labels, strict=True)
    return torch.stack([torch.logsumexp(row, 0) - row[y] for row, y in rows]).mean()


def slow_phase(net: nn.ModuleDict, of: Cell, incoming: Batch, stage: int) -> torch.Generator:
    """Take the slow steps on the twin; return the generator of memory draws after them."""
    draws, views = clone(of.method.memory_rng), clone(of.method.view_rng)
    before = copy.deepcopy(net)
    parts = [net["backbone"].slow, net["projector"]]
    parameters = [p for part in parts for p in part.parameters()]
    for _ in range(2):
        batch, memory = incoming, of.method.memory
        if stage > 0:
            slots = torch.randperm(memory.filled, generator=draws)[:4]
            batch = of.stream.fetch(memory.indices[slots])
        both = [view(SCR, batch.images, views) for _ in range(2)]
        z = [net["projector"](net["backbone"].slow(x)) for x in both]
        found = torch.autograd.grad(barlow(*z), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.copy_(parameter - 0.002 * gradient)
    old = before.state_dict()
    with torch.no_grad():
        for name, now in net.state_dict().items():
            if now.is_floating_point():
                now.copy_(old[name] + 0.5 * (now - old[name]))
    return draws


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.usefixtures("double_precision")
def test_slow_steps_and_look_ahead_are_those_of_a_slow_twin(stage: int) -> None:
    if stage == 0:
        one = cell()
        one.method.begin_stage(0)
        incoming = next(one.stream.batches(0))
    else:
        one, incoming = in_second_stage()
    start, twin = copy.deepcopy(one.method.net), copy.deepcopy(one.method.net)
    count = one.method.trained_images
    slow_phase(twin, one, incoming, stage)
    one.method.receive(incoming)
    assert_same(one.method.net, twin)
    moved = {k for k, v in start.state_dict().items() if not torch.equal(v, twin.state_dict()[k])}
    assert "backbone.slow.stem.weight" in moved
    assert "backbone.slow.bn.running_mean" in moved
    assert "projector.1.running_var" in moved
    assert one.method.trained_images - count == 2 * 2 * 4


def test_slow_steps_leave_the_fast_net_and_the_classifier_alone() -> None:
    one, incoming = in_second_stage()
    before = copy.deepcopy(one.method.net.state_dict())
    one.method.receive(incoming)
    for name, value in one.method.net.state_dict().items():
        if not name.startswith(("backbone.slow", "projector")):
            assert torch.equal(value, before[name]), name


def test_without_looking_ahead_nothing_of_the_slow_steps_stays() -> None:
    one, incoming = in_second_stage(look_ahead=0.0)
    before = copy.deepcopy(one.method.net.state_dict())
    one.method.receive(incoming)
    for name, value in one.method.net.state_dict().items():
        if value.is_floating_point():
            assert torch.equal(value, before[name]), name


def test_a_fast_step_distils_only_images_whose_own_logits_are_stored() -> None:
    one, incoming = in_second_stage(memory_batch_size=8)
    method = one.method
    first = cell(memory_batch_size=8)
    first.method.begin_stage(0)
    held, batches = [], first.stream.batches(0)
    for _ in range(2):
        held += next(batches).indices.tolist()
    first.method.learn(next(batches), None)
    frozen = copy.deepcopy(first.method.net).eval()

    twin, draws = copy.deepcopy(method.net), clone(method.memory_rng)
    memory = method.memory
    slots = torch.randperm(8, generator=draws)
    replay = one.stream.fetch(memory.indices[slots])
    z = logits(twin, incoming.images)
    loss = cross_entropy(z, incoming.labels)
    z = logits(twin, replay.images)
    loss = loss + cross_entropy(z, replay.labels)
    known = [i for i, image in enumerate(replay.indices.tolist()) if image in held]
    assert 0 < len(known) < 8
    with torch.no_grad():
        stored = logits(frozen, replay.images)
    total = torch.zeros(())
    for i in known:
        t, s = (torch.softmax(row / 2, 0) for row in (stored[i], z[i]))
        total = total + (t * (torch.log(t) - torch.log(s))).sum()
    # n * the mean over the entries of n known images: their number cancels out.
    loss = loss + 10 * total / 10
    move(twin, gradients(twin, loss), 0.02)

    given = method.retrieve(incoming)
    assert given is not None
    assert torch.equal(given.indices, replay.indices)
    method.learn(incoming, given)
    assert float(method.losses[-1]) == pytest.approx(float(loss.detach()), rel=1e-4)
    assert_same(method.net, twin)


def test_logits_are_stored_for_new_exemplars_when_a_stage_ends() -> None:
    one, _ = in_second_stage()
    before = copy.deepcopy(one.method.state())
    frozen = copy.deepcopy(one.method.net).eval()
    one.method.end_stage()
    after, memory = one.method.state(), one.method.memory
    assert torch.equal(after["logits_of"], memory.indices)
    is_new = before["logits_of"] != memory.indices
    assert 0 < int(is_new.sum()) < 8
    with torch.no_grad():
        expected = logits(frozen, one.stream.fetch(memory.indices).images)
    assert torch.allclose(after["logits"][is_new], expected[is_new], atol=1e-4)
    assert torch.equal(after["logits"][~is_new], before["logits"][~is_new])


def test_nothing_is_distilled_in_the_first_stage() -> None:
    one = cell(distillation_weight=1000.0)
    one.method.begin_stage(0)
    batches = one.stream.batches(0)
    one.method.remember(next(batches))
    incoming, twin = next(batches), copy.deepcopy(one.method.net)
    replay = one.method.retrieve(incoming)
    assert replay is not None
    one.method.learn(incoming, replay)
    loss = cross_entropy(logits(twin, incoming.images), incoming.labels)
    loss = loss + cross_entropy(logits(twin, replay.images), replay.labels)
    assert float(one.method.losses[-1]) == pytest.approx(float(loss.detach()), rel=1e-4)


def test_replay_can_wait_for_the_second_stage() -> None:
    one = cell(first_stage_replay=False)
    one.method.begin_stage(0)
    incoming = next(one.stream.batches(0))
    one.method.remember(incoming)
    assert one.method.retrieve(incoming) is None
    one, incoming = in_second_stage(first_stage_replay=False)
    assert one.method.retrieve(incoming) is not None


def test_a_memory_of_one_image_cannot_be_decorrelated_and_the_batch_is() -> None:
    one = cell(memory_size=1)
    one.method.begin_stage(0)
    one.method.remember(next(one.stream.batches(0)))
    one.method.begin_stage(1)
    one.method.receive(next(one.stream.batches(1)))
    assert one.method.trained_images == 2 * 2 * 4
    assert all(p.isfinite().all() for p in one.method.net.parameters())


def test_the_defaults_are_the_task_free_ones_under_the_rule_of_equal_cost() -> None:
    config = DualnetConfig()
    assert (config.learning_rate, config.slow_rate, config.look_ahead) == (0.03, 3e-4, 0.05)
    assert (config.distillation_weight, config.temperature) == (10, 2)
    assert (config.updates_per_batch, config.memory_batch_size) == (4, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feature_pool": "grid"}, "dualnet.feature_pool must be global, got 'grid'"),
        ({"classifier": "ncm-euclid"}, "dualnet.classifier must be softmax, got 'ncm-euclid'"),
        ({"slow_rate": 0.0}, r"dualnet.slow_rate must lie in \(0, 100\], got 0.0"),
        ({"temperature": 0.0}, r"dualnet.temperature must lie in \(0, 1000\], got 0.0"),
        ({"look_ahead": 1.5}, r"dualnet.look_ahead must lie in \[0, 1\], got 1.5"),
        ({"distillation_weight": -1.0}, r"dualnet.distillation_weight must lie in \[0, 1000\]"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        cell(**changes)


def test_a_batch_of_one_image_is_refused_since_it_cannot_be_decorrelated() -> None:
    with pytest.raises(SpecError, match="batch_size"):
        cell(batch_size=1)
