import copy
from typing import Any

import pytest
import torch
from slow_twins import SMALL, assert_same, clone, gradients, mean_loss, move, second_stage, toy_cell
from torch import Tensor

from oclgrid.trainables.configs.aser import AserConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.stream import Batch


def cell(memory_size: int = 24, **changes: Any) -> Cell:
    return toy_cell(AserConfig(**{**SMALL, "samples_per_class": 2, **changes}), memory_size)


class SlowAser:
    """Retrieval and update of 6.6 in plain loops, fed with the same draws."""

    def __init__(self, of: Cell, *, per_class: int = 2, neighbours: int = 3) -> None:
        self.of, self.per_class, self.neighbours = of, per_class, neighbours
        self.net, self.draws = copy.deepcopy(of.method.net), clone(of.method.memory_rng)
        memory = of.method.memory
        self.images = memory.indices[: memory.filled].tolist()
        self.minority: list[int] = []
        self.replaced = 0

    def label(self, image: int) -> int:
        return int(self.of.stream.fetch(torch.tensor([image])).labels)

    def feature(self, image: int) -> Tensor:
        """Of one image alone, with running BatchNorm statistics."""
        with torch.no_grad():
            found: Tensor = self.net["backbone"].eval()(
                self.of.stream.fetch(torch.tensor([image])).images
            )
        return found[0].double()

    def balanced(self, without: list[int]) -> list[int]:
        """Return slots, up to N_s of each class."""
        taken: dict[int, int] = {}
        slots = []
        for slot in torch.randperm(len(self.images), generator=self.draws).tolist():
            y = self.label(self.images[slot])
            if slot not in without and taken.get(y, 0) < self.per_class:
                taken[y] = taken.get(y, 0) + 1
                slots.append(slot)
        return slots

    def values(self, points: list[int], candidates: list[int]) -> list[list[float]]:
        """KNN Shapley values by the recursion from the farthest candidate on."""
        features = {i: self.feature(i) for i in {*points, *candidates}}
        labels = {i: self.label(i) for i in {*points, *candidates}}
        n, k, rows = len(candidates), self.neighbours, []
        for point in points:
            gaps = [float((features[point] - features[c]).square().sum()) for c in candidates]
            order = sorted(range(n), key=lambda c: gaps[c])
            hit = [float(labels[candidates[c]] == labels[point]) for c in order]
            row = [0.0] * n
            row[order[-1]] = s = hit[-1] / n
            for m in range(n - 1, 0, -1):
                s += (hit[m - 1] - hit[m]) / k * min(k, m) / m
                row[order[m - 1]] = s
            rows.append(row)
        return rows

    def scores(self, incoming: list[int], variant: str) -> dict[int, float]:
        """Return the score of each candidate for retrieval."""
        own = self.balanced([])
        candidates = [self.images[slot] for slot in own]
        partners = [self.images[slot] for slot in self.balanced(own)]
        adversarial = list(zip(*self.values(incoming, candidates), strict=True))
        cooperative = list(zip(*self.values(partners, candidates), strict=True))
        cooperative = cooperative or [(0.0,)] * len(candidates)
        score = {
            "asvm": lambda a, c: sum(c) / len(c) - sum(a) / len(a),
            "asv": lambda a, c: max(c) - min(a),
            "neg_sv": lambda a, c: -sum(a),
        }[variant]
        scores = [score(a, c) for a, c in zip(adversarial, cooperative, strict=True)]
        return dict(zip(candidates, scores, strict=True))

    def update(self, incoming: list[int]) -> None:
        size, classes = self.of.spec.memory_size, 10
        while len(self.images) < size and incoming:
            self.images.append(incoming[0])
            incoming = incoming[1:]
        if not incoming:
            return
        balanced = self.balanced([])
        free = [slot for slot in range(size) if slot not in balanced]
        order = torch.randperm(len(free), generator=self.draws).tolist()
        slots = [free[i] for i in order[: self.per_class * classes]]
        bar = float(torch.rand((), generator=self.draws)) / classes
        held = [self.label(i) for i in self.images]
        self.minority = [i for i in incoming if held.count(self.label(i)) / size < bar]
        points = [self.images[slot] for slot in balanced] + self.minority
        candidates = [self.images[slot] for slot in slots] + incoming
        totals = [sum(column) for column in zip(*self.values(points, candidates), strict=True)]
        ranked = sorted(range(len(totals)), key=lambda c: -totals[c])
        entering = [c - len(slots) for c in ranked[: len(slots)] if c >= len(slots)]
        leaving = [slots[c] for c in ranked[len(slots) :] if c < len(slots)]
        for new, slot in zip(entering, leaving, strict=True):
            self.images[slot] = incoming[new]
            self.replaced += 1


def full(**changes: Any) -> tuple[Cell, Batch]:
    """Return a cell whose memory was filled in the first stage, and a batch of the second."""
    one, incoming = second_stage(cell(**changes), old=7, new=1)
    assert one.method.memory.seen == 32
    return one, incoming


def test_the_memory_is_that_of_a_slow_twin_over_two_stages() -> None:
    one = cell()
    replaced = with_minority = without_minority = 0
    for stage in (0, 1):
        one.method.begin_stage(stage)
        for incoming in one.stream.batches(stage):
            twin = SlowAser(one)
            twin.update(incoming.indices.tolist())
            one.method.remember(incoming)
            memory = one.method.memory
            assert memory.indices[: memory.filled].tolist() == twin.images
            assert memory.labels[: memory.filled].tolist() == [twin.label(i) for i in twin.images]
            replaced += twin.replaced
            with_minority += len(twin.minority) > 0
            without_minority += len(twin.images) == 24 and not twin.minority
    assert replaced > 0
    assert with_minority > 0
    assert without_minority > 0
    assert memory.seen == 4 * sum(one.stream.batches_in(stage) for stage in (0, 1))


def test_a_batch_that_only_half_fits_is_half_appended_and_half_judged() -> None:
    one = cell(memory_size=10)
    one.method.begin_stage(0)
    for incoming, _ in zip(one.stream.batches(0), range(3), strict=False):
        twin = SlowAser(one)
        twin.update(incoming.indices.tolist())
        one.method.remember(incoming)
        assert one.method.memory.indices[: one.method.memory.filled].tolist() == twin.images
    assert one.method.memory.seen == 12


def assert_best(replay: Batch | None, scores: dict[int, float]) -> None:
    """Candidates may tie, so scores are compared and not images."""
    assert replay is not None
    assert len(set(replay.indices.tolist())) == 4
    found = sorted((scores[i] for i in replay.indices.tolist()), reverse=True)
    assert found == pytest.approx(sorted(scores.values(), reverse=True)[:4], abs=1e-9)


@pytest.mark.parametrize("variant", ["asvm", "asv", "neg_sv"])
def test_replay_has_the_highest_scores_of_a_slow_twin(variant: str) -> None:
    one, incoming = full(variant=variant)
    scores = SlowAser(one).scores(incoming.indices.tolist(), variant)
    assert len(set(scores.values())) > 1
    assert_best(one.method.retrieve(incoming), scores)


def test_the_number_of_neighbours_can_be_chosen() -> None:
    one, incoming = full(neighbours=1)
    scores = SlowAser(one, neighbours=1).scores(incoming.indices.tolist(), "asvm")
    assert_best(one.method.retrieve(incoming), scores)


def test_without_partners_the_new_batch_alone_decides() -> None:
    one, incoming = full(samples_per_class=24)
    scores = SlowAser(one, per_class=24).scores(incoming.indices.tolist(), "asvm")
    assert len(scores) == 24
    assert_best(one.method.retrieve(incoming), scores)


def test_a_step_is_one_mean_over_memory_and_incoming_batch_together() -> None:
    one, incoming = full()
    replay, twin = one.method.retrieve(incoming), copy.deepcopy(one.method.net)
    assert replay is not None
    one.method.learn(incoming, replay)
    both = one.stream.fetch(torch.cat([replay.indices, incoming.indices]))
    move(twin, gradients(twin, mean_loss(twin, both)))
    assert_same(one.method.net, twin)
    assert one.method.trained_images == 8


def test_a_step_can_add_two_means_as_the_others_do() -> None:
    one, incoming = full(composition="separate")
    replay, twin = one.method.retrieve(incoming), copy.deepcopy(one.method.net)
    assert replay is not None
    one.method.learn(incoming, replay)
    move(twin, gradients(twin, mean_loss(twin, incoming) + mean_loss(twin, replay)))
    assert_same(one.method.net, twin)


def test_retrieval_is_uniform_while_all_that_came_is_in_memory() -> None:
    one = cell(memory_size=8)
    one.method.begin_stage(0)
    batches = one.stream.batches(0)
    for _ in range(2):
        one.method.remember(next(batches))
    incoming = next(batches)
    draws, memory = clone(one.method.memory_rng), one.method.memory
    expected = memory.indices[torch.randperm(8, generator=draws)[:4]]
    replay = one.method.retrieve(incoming)
    assert replay is not None
    assert torch.equal(replay.indices, expected)


def test_scoring_leaves_the_network_as_it_was() -> None:
    one, incoming = full()
    before = copy.deepcopy(one.method.net.state_dict())
    one.method.retrieve(incoming)
    one.method.remember(incoming)
    after = one.method.net.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    assert all(m.training for m in one.method.net.modules())


def test_retrieval_passes_each_image_through_the_network_once() -> None:
    one, incoming = full()
    passed: list[int] = []
    one.method.net["backbone"].register_forward_pre_hook(
        lambda _, inputs: passed.append(len(inputs[0]))
    )
    one.method.retrieve(incoming)
    held = len(set(one.method.memory.labels.tolist()))
    assert len(passed) == 1
    assert passed[0] <= 2 * 2 * held + len(incoming)


@pytest.mark.parametrize("switch", [{"replay_from": "old"}, {"short_memory": "wait"}])
def test_switches_that_shapley_retrieval_cannot_heed_are_refused(switch: dict[str, str]) -> None:
    with pytest.raises(SpecError, match="leave replay_from and short_memory at all"):
        AserConfig(**switch)


def test_without_memory_nothing_is_replayed() -> None:
    one = cell(memory_size=0)
    one.method.begin_stage(0)
    batches = one.stream.batches(0)
    one.method.remember(next(batches))
    assert one.method.retrieve(next(batches)) is None


@pytest.mark.parametrize(
    ("dataset", "count"), [("cifar10", 9), ("cifar100", 2), ("miniimagenet", 3)]
)
def test_the_sample_of_each_class_follows_the_dataset(dataset: str, count: int) -> None:
    assert AserConfig.for_dataset(dataset) == {"samples_per_class": count}


@pytest.mark.parametrize("field", ["neighbours", "samples_per_class"])
def test_counts_cannot_be_zero(field: str) -> None:
    with pytest.raises(SpecError, match=f"aser.{field} must be at least 1, got 0"):
        cell(**{field: 0})
