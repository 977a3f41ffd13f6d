import copy
from typing import Any

import pytest
import torch
from slow_twins import SMALL, assert_same, clone, descend, mean_loss, second_stage, toy_cell
from torch import Tensor

from oclgrid.trainables.configs.gss import GssConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.stream import Batch


def cell(memory_size: int = 10, **changes: Any) -> Cell:
    return toy_cell(GssConfig(**{**SMALL, **changes}), memory_size)


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
    return second_stage(cell(memory_size=8), old=2, new=0)


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


def test_one_part_of_the_memory_that_agrees_is_enough_to_change_nothing() -> None:
    one, _ = second_stage(cell(memory_size=8, subset_size=4), old=2, new=0)
    passes: list[int] = []
    one.method.net["backbone"].register_forward_pre_hook(lambda *_: passes.append(1))
    known = one.stream.fetch(one.method.memory.indices[:4])
    one.method.remember(known)
    assert len(passes) == 2  # the batch and the first of two parts


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
    descend(twin, mean_loss(twin, incoming) + mean_loss(twin, replay))
    assert_same(one.method.net, twin, atol=2e-5, rtol=1e-5)


def test_the_paper_configs_compare_with_ten_subsets_of_ten() -> None:
    config = GssConfig()
    assert (config.subsets, config.subset_size) == (10, 10)


@pytest.mark.parametrize("field", ["subsets", "subset_size"])
def test_subsets_cannot_be_empty(field: str) -> None:
    with pytest.raises(SpecError, match=f"gss.{field} must be at least 1, got 0"):
        cell(**{field: 0})
