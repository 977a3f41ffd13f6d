import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.methods.mir import MirConfig
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import Batch


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cell(memory_size: int = 12, **changes: Any) -> Cell:
    config = MirConfig(**{"batch_size": 4, "memory_batch_size": 4, **changes})
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


def in_second_stage(**changes: Any) -> tuple[Cell, Batch]:
    """Return a cell whose memory holds eight old and four new images, and the next batch."""
    one = cell(**changes)
    one.method.begin_stage(0)
    old = one.stream.batches(0)
    for _ in range(2):
        one.method.remember(next(old))
    one.method.begin_stage(1)
    incoming = one.stream.batches(1)
    one.method.remember(next(incoming))
    return one, next(incoming)


def clone(generator: torch.Generator) -> torch.Generator:
    """Return a generator about to make the same draws."""
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    return twin


def cross_entropies(net: nn.ModuleDict, batch: Batch) -> list[Tensor]:
    """-log p of each image's own class, image by image, from one forward pass."""
    outputs = net["softmax"](net["backbone"](batch.images))
    pairs = zip(outputs, batch.labels, strict=True)
    return [-torch.log(torch.exp(z[y]) / torch.exp(z).sum()) for z, y in pairs]


def mean_loss(net: nn.ModuleDict, batch: Batch) -> Tensor:
    return torch.stack(cross_entropies(net, batch)).mean()


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


def slow_step(
    of: Cell, incoming: Batch, *, candidates: int, rate: float = 0.1
) -> tuple[nn.ModuleDict, list[int]]:
    """Return the network after the step of 6.5, and the images replayed, in falling score."""
    net, draws = copy.deepcopy(of.method.net), clone(of.method.memory_rng)
    along = gradients(net, mean_loss(net, incoming))
    memory = of.method.memory
    slots = torch.randperm(memory.filled, generator=draws)[:candidates]
    subset = of.stream.fetch(memory.indices[slots])
    virtual = copy.deepcopy(net)
    move(virtual, along, rate)
    with torch.no_grad():
        after, now = cross_entropies(virtual, subset), cross_entropies(net, subset)
    harm = [float(a - b) for a, b in zip(after, now, strict=True)]
    worst = sorted(range(len(harm)), key=lambda i: -harm[i])[:4]
    replay = of.stream.fetch(subset.indices[worst])
    more = gradients(net, mean_loss(net, replay))
    move(net, [a + b for a, b in zip(along, more, strict=True)], rate)
    return net, replay.indices.tolist()


@pytest.mark.parametrize("rate", [0.1, 0.03])
def test_a_step_replays_what_a_virtual_step_would_hurt_most(rate: float) -> None:
    one, incoming = in_second_stage(candidates=9, learning_rate=rate)
    twin, expected = slow_step(one, incoming, candidates=9, rate=rate)
    replay = one.method.retrieve(incoming)
    assert replay is not None
    assert replay.indices.tolist() == expected
    one.method.learn(incoming, replay)
    assert_same(one.method.net, twin)


def test_a_second_step_draws_and_scores_anew() -> None:
    one, incoming = in_second_stage(candidates=9)
    one.method.learn(incoming, one.method.retrieve(incoming))
    twin, expected = slow_step(one, incoming, candidates=9)
    replay = one.method.retrieve(incoming)
    assert replay is not None
    assert replay.indices.tolist() == expected
    one.method.learn(incoming, replay)
    assert_same(one.method.net, twin)


def test_all_exemplars_are_candidates_where_there_are_fewer_than_asked_for() -> None:
    one, incoming = in_second_stage()
    assert one.spec.method.candidates == 50  # type: ignore[attr-defined]  # of MIR
    twin, expected = slow_step(one, incoming, candidates=12)
    replay = one.method.retrieve(incoming)
    assert replay is not None
    assert replay.indices.tolist() == expected
    one.method.learn(incoming, replay)
    assert_same(one.method.net, twin)


def test_the_first_batch_is_trained_on_alone() -> None:
    one = cell()
    one.method.begin_stage(0)
    incoming, twin = next(one.stream.batches(0)), copy.deepcopy(one.method.net)
    replay = one.method.retrieve(incoming)
    assert replay is None
    one.method.learn(incoming, replay)
    move(twin, gradients(twin, mean_loss(twin, incoming)))
    assert_same(one.method.net, twin)


def test_the_loss_of_a_step_is_the_sum_of_both_means() -> None:
    one, incoming = in_second_stage()
    twin = copy.deepcopy(one.method.net)
    replay = one.method.retrieve(incoming)
    assert replay is not None
    one.method.learn(incoming, replay)
    expected = float(mean_loss(twin, incoming).detach() + mean_loss(twin, replay).detach())
    assert float(one.method.losses[-1]) == pytest.approx(expected, rel=1e-4)


def test_scoring_is_not_counted_as_training() -> None:
    one, incoming = in_second_stage()
    one.method.learn(incoming, one.method.retrieve(incoming))
    assert one.method.trained_images == 8


def test_fewer_candidates_than_a_memory_batch_are_refused() -> None:
    with pytest.raises(SpecError, match=r"mir\.candidates must not be below memory_batch_size"):
        cell(candidates=3)


def test_a_union_is_refused_since_the_incoming_gradient_is_needed_alone() -> None:
    with pytest.raises(SpecError, match=r"mir\.composition must be separate, got 'union'"):
        cell(composition="union")
