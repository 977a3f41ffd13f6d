import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.methods.gss import GssConfig
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import Batch


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cell(memory_size: int = 10, **changes: Any) -> Cell:
    config = GssConfig(**{"batch_size": 4, "memory_batch_size": 4, **changes})
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


class SlowGss:
    """The memory of 6.4 in plain lists, fed with the same draws."""

    def __init__(self, of: Cell, *, subsets: int, subset_size: int) -> None:
        self.of, self.subsets, self.subset_size = of, subsets, subset_size
        self.images: list[int] = []
        self.scores: list[float] = []
        self.replaced = self.refused = 0

    def begin(self) -> None:
        """Take over the network and the draws to come."""
        self.net, self.draws = (
            copy.deepcopy(self.of.method.net).eval(),
            clone(self.of.method.memory_rng),
        )

    def gradient(self, images: list[int]) -> Tensor:
        batch = self.of.stream.fetch(torch.tensor(images))
        found = torch.autograd.grad(mean_loss(self.net, batch), list(self.net.parameters()))
        return torch.cat([g.flatten() for g in found])

    def memory_gradients(self) -> list[Tensor]:
        filled = len(self.images)
        q = min(self.subset_size, filled)
        order = torch.randperm(filled, generator=self.draws).tolist()
        chunks = [order[j * q : (j + 1) * q] for j in range(min(self.subsets, filled // q))]
        return [self.gradient([self.images[slot] for slot in chunk]) for chunk in chunks]

    def similarity(self, v: Tensor, known: list[Tensor]) -> float:
        """In double precision; norms of a million single ones are off in the fourth digit."""
        pairs = [(v.double(), g.double()) for g in known]
        return max(float(a @ b) / max(float(a.norm() * b.norm()), 1e-8) for a, b in pairs)

    def update(self, incoming: list[int]) -> None:
        self.begin()
        size = self.of.spec.memory_size
        if len(self.images) < size:
            fits = incoming[: size - len(self.images)]
            scores = [0.1] * len(fits)
            if self.images:
                known = self.memory_gradients()
                scores = [self.similarity(self.gradient([i]), known) for i in fits]
            self.images += fits
            self.scores += scores
            return
        known = self.memory_gradients()
        if self.similarity(self.gradient(incoming), known) >= 0:
            self.refused += 1
            return
        self.replace(incoming, known)

    def replace(self, incoming: list[int], known: list[Tensor]) -> None:
        low, high = min(self.scores), max(self.scores)
        chances = torch.tensor([(c - low) / (high - low + 0.01) for c in self.scores])
        slots = torch.multinomial(chances, len(incoming), generator=self.draws).tolist()
        new = [self.similarity(self.gradient([i]), known) for i in incoming]
        draws = torch.rand(len(incoming), generator=self.draws).tolist()
        for i, slot, s, u in zip(incoming, slots, new, draws, strict=True):
            a, b = (s + 1) / 2, (self.scores[slot] + 1) / 2
            if u < b / (a + b):
                self.images[slot], self.scores[slot] = i, s
                self.replaced += 1


def assert_same_memory(of: Cell, twin: SlowGss) -> None:
    memory = of.method.memory
    assert memory.indices[: memory.filled].tolist() == twin.images
    labels = of.stream.fetch(memory.indices[: memory.filled]).labels
    assert torch.equal(memory.labels[: memory.filled], labels)
    scores = of.method.state()["scores"][: memory.filled].tolist()
    assert scores == pytest.approx(twin.scores, abs=5e-4)


@pytest.mark.parametrize(("subsets", "subset_size"), [(10, 10), (2, 4)])
def test_the_memory_is_that_of_a_slow_twin_over_two_stages(subsets: int, subset_size: int) -> None:
    one = cell(subsets=subsets, subset_size=subset_size)
    twin = SlowGss(one, subsets=subsets, subset_size=subset_size)
    for stage, count in ((0, 3), (1, 4)):
        one.method.begin_stage(stage)
        for number, incoming in enumerate(one.stream.batches(stage)):
            if number == count:
                break
            twin.update(incoming.indices.tolist())
            one.method.remember(incoming)
            assert_same_memory(one, twin)
        one.method.learn(one.stream.fetch(one.method.memory.indices), None)
    assert twin.replaced > 0
    assert twin.refused > 0
    assert one.method.memory.seen == 28


def test_images_that_enter_an_empty_memory_score_a_tenth() -> None:
    one = cell()
    one.method.begin_stage(0)
    one.method.remember(next(one.stream.batches(0)))
    assert one.method.state()["scores"][:4].tolist() == pytest.approx([0.1] * 4)


def filled() -> tuple[Cell, Batch]:
    """Return a cell whose memory is full of the first stage, and a batch of the second."""
    one = cell(memory_size=8)
    one.method.begin_stage(0)
    batches = one.stream.batches(0)
    for _ in range(2):
        one.method.remember(next(batches))
    one.method.begin_stage(1)
    return one, next(one.stream.batches(1))


def test_a_batch_that_resembles_the_memory_changes_nothing() -> None:
    one, _ = filled()
    before = copy.deepcopy(one.method.state())
    twin = SlowGss(one, subsets=10, subset_size=10)
    twin.images, twin.scores = before["memory"]["indices"].tolist(), before["scores"].tolist()
    known = one.stream.fetch(before["memory"]["indices"][:4])
    twin.update(known.indices.tolist())
    assert twin.refused == 1
    one.method.remember(known)
    after = one.method.state()
    assert torch.equal(after["memory"]["indices"], before["memory"]["indices"])
    assert torch.equal(after["scores"], before["scores"])


def test_exemplars_that_are_all_alike_all_stay() -> None:
    one, incoming = filled()
    state = one.method.state()
    one.method.load({**state, "scores": torch.full((8,), 0.3)})
    one.method.remember(incoming)
    assert torch.equal(one.method.state()["memory"]["indices"], state["memory"]["indices"])


def test_only_as_many_images_enter_as_exemplars_can_go() -> None:
    one, incoming = filled()
    state = one.method.state()
    one.method.load({**state, "scores": torch.tensor([0.9] + [-1.0] * 7)})
    one.method.remember(incoming)
    found = one.method.state()["memory"]["indices"]
    assert torch.equal(found[1:], state["memory"]["indices"][1:])
    assert int(found[0]) in (int(state["memory"]["indices"][0]), int(incoming.indices[0]))


def test_an_update_leaves_the_network_as_it_was() -> None:
    one, incoming = filled()
    before = copy.deepcopy(one.method.net.state_dict())
    one.method.remember(incoming)
    after = one.method.net.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    assert all(m.training for m in one.method.net.modules())
    assert one.method.trained_images == 0


def test_gradients_of_single_images_take_one_pass_for_all_of_them() -> None:
    one, incoming = filled()
    passes: list[int] = []
    one.method.net["backbone"].register_forward_pre_hook(lambda *_: passes.append(1))
    twin = SlowGss(one, subsets=10, subset_size=10)
    state = one.method.state()
    twin.images, twin.scores = state["memory"]["indices"].tolist(), state["scores"].tolist()
    one.method.remember(incoming)
    twin.update(incoming.indices.tolist())
    assert twin.refused == 0
    assert len(passes) == 3 + 6  # ours: a subset, the batch, all images at once; the twin's 2 + 4


def test_a_step_is_that_of_experience_replay() -> None:
    one, incoming = filled()
    replay, twin = one.method.retrieve(incoming), copy.deepcopy(one.method.net)
    assert replay is not None
    one.method.learn(incoming, replay)
    loss = mean_loss(twin, incoming) + mean_loss(twin, replay)
    with torch.no_grad():
        found = torch.autograd.grad(loss, list(twin.parameters()))
        for parameter, gradient in zip(twin.parameters(), found, strict=True):
            parameter.copy_(parameter - 0.1 * gradient)
    for name, value in one.method.net.state_dict().items():
        assert torch.allclose(value, twin.state_dict()[name], atol=2e-5), name


def test_the_paper_configs_compare_with_ten_subsets_of_ten() -> None:
    config = GssConfig()
    assert (config.subsets, config.subset_size) == (10, 10)


@pytest.mark.parametrize("field", ["subsets", "subset_size"])
def test_subsets_cannot_be_empty(field: str) -> None:
    with pytest.raises(SpecError, match=f"gss.{field} must be at least 1, got 0"):
        cell(**{field: 0})
