import pytest
import torch
from torch import Tensor

from oclgrid.trainables.memory import Memory, reservoir_update, uniform_retrieval


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def offer(
    memory: Memory, first: int, count: int, *, generator: torch.Generator | None = None
) -> None:
    """Offer images ``first`` onwards; an image's label is its number divided by ten."""
    numbers = torch.arange(first, first + count)
    reservoir_update(memory, numbers, numbers // 10, generator=generator or seeded())


def filled_with(count: int, size: int | None = None) -> Memory:
    memory = Memory(count if size is None else size)
    offer(memory, 0, count)
    return memory


def slow_reservoir(size: int, batches: list[list[int]], generator: torch.Generator) -> list[int]:
    """The rule of the reference, image by image, with the same draws."""
    slots: list[int] = []
    seen = 0
    for batch in batches:
        waiting = list(batch)
        while waiting and len(slots) < size:
            slots.append(waiting.pop(0))
            seen += 1
        if not waiting:
            continue
        draws = torch.rand(len(waiting), generator=generator, dtype=torch.float64).tolist()
        for image, u in zip(waiting, draws, strict=True):
            j = int(u * seen)
            if j < size:
                slots[j] = image
        seen += len(waiting)
    return slots


def test_slots_are_filled_in_order_of_arrival() -> None:
    memory = Memory(25)
    for first in (0, 10):
        offer(memory, first, 10)
        assert memory.indices[: memory.filled].tolist() == list(range(first + 10))
    assert memory.filled == 20


def test_a_batch_that_does_not_fit_first_fills_the_free_slots() -> None:
    memory = filled_with(8, size=10)
    offer(memory, 100, 2)
    assert memory.indices.tolist() == [*range(8), 100, 101]


def test_every_image_is_kept_with_equal_probability() -> None:
    size, offered, repeats, generator = 20, 200, 400, seeded(7)
    kept = torch.zeros(offered)
    for _ in range(repeats):
        memory = Memory(size)
        for first in range(0, offered, 10):
            offer(memory, first, 10, generator=generator)
        kept[memory.indices] += 1
    # Images of one repeat exclude each other a little, so the true variance is below this one.
    expected = repeats * size / offered
    chi_square = float(((kept - expected).square() / (expected * (1 - size / offered))).sum())
    assert chi_square < 200 + 5 * (2 * 200) ** 0.5
    # The rule uses the count before the batch, which favours later images by 10 / seen at most.
    early, late = kept[:100].mean() / repeats, kept[100:].mean() / repeats
    assert early == pytest.approx(0.1, abs=0.012)
    assert late == pytest.approx(0.1, abs=0.012)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1, 7, 10, 25])
def test_the_reservoir_follows_the_rule_of_the_reference(size: int, seed: int) -> None:
    memory, generator = Memory(size), seeded(seed)
    for first in range(0, 200, 10):
        offer(memory, first, 10, generator=generator)
    batches = [list(range(first, first + 10)) for first in range(0, 200, 10)]
    assert memory.indices.tolist() == slow_reservoir(size, batches, seeded(seed))


def test_labels_stay_with_their_images() -> None:
    memory, generator = Memory(15), seeded()
    for first in range(0, 300, 10):
        offer(memory, first, 10, generator=generator)
    assert memory.labels.tolist() == [i // 10 for i in memory.indices.tolist()]


@pytest.mark.parametrize("size", [0, 5, 35, 100])
def test_all_offered_images_are_counted(size: int) -> None:
    memory = Memory(size)
    for first in range(0, 50, 10):
        offer(memory, first, 10)
        assert memory.seen == first + 10
    assert memory.filled == min(size, 50)


def test_of_two_images_for_one_slot_the_later_stays() -> None:
    memory = filled_with(3)
    memory.write(torch.tensor([1, 2, 1]), torch.tensor([7, 8, 9]), torch.tensor([70, 80, 90]))
    assert memory.indices.tolist() == [0, 9, 8]
    assert memory.labels.tolist() == [0, 90, 80]


def test_a_memory_of_size_zero_takes_and_gives_nothing() -> None:
    memory = Memory(0)
    offer(memory, 0, 10)
    assert memory.size == memory.filled == 0
    assert len(uniform_retrieval(memory, 10, generator=seeded())) == 0


def test_an_empty_memory_gives_nothing() -> None:
    assert len(uniform_retrieval(Memory(10), 10, generator=seeded())) == 0


@pytest.mark.parametrize("seed", range(20))
def test_retrieved_slots_are_distinct_and_in_use(seed: int) -> None:
    slots = uniform_retrieval(filled_with(30, size=50), 10, generator=seeded(seed)).tolist()
    assert len(slots) == len(set(slots)) == 10
    assert all(0 <= s < 30 for s in slots)


@pytest.mark.parametrize("count", [4, 5, 100])
def test_all_slots_are_retrieved_when_no_more_are_in_use(count: int) -> None:
    slots = uniform_retrieval(filled_with(4, size=50), count, generator=seeded())
    assert sorted(slots.tolist()) == [0, 1, 2, 3]


def test_every_slot_is_retrieved_equally_often() -> None:
    memory, generator = filled_with(20), seeded(3)
    times = torch.zeros(20)
    for _ in range(2000):
        times[uniform_retrieval(memory, 5, generator=generator)] += 1
    assert float(times.min()) > 500 - 5 * (500 * 0.75) ** 0.5
    assert float(times.max()) < 500 + 5 * (500 * 0.75) ** 0.5


@pytest.mark.parametrize(("below", "expected"), [(0, 0), (1, 10), (2, 20), (9, 30)])
def test_retrieval_can_be_held_to_labels_below_a_bound(below: int, expected: int) -> None:
    memory = filled_with(30)
    slots: Tensor = uniform_retrieval(memory, 100, generator=seeded(), below=below)
    assert len(slots) == expected
    assert (memory.labels[slots] < below).all()


def test_retrieval_does_not_change_the_memory() -> None:
    memory = filled_with(30)
    before = memory.state()
    uniform_retrieval(memory, 10, generator=seeded())
    assert all(torch.equal(before[k], memory.state()[k]) for k in ("indices", "labels"))
    assert memory.state()["seen"] == before["seen"]


@pytest.mark.parametrize("count", [0, 20, 60])
def test_a_loaded_memory_goes_on_like_the_saved_one(count: int) -> None:
    saved, loaded = Memory(35), Memory(35)
    for first in range(0, count, 10):
        offer(saved, first, 10)
    loaded.load(saved.state())
    for memory in (saved, loaded):
        offer(memory, 500, 50, generator=seeded(9))
    assert torch.equal(saved.indices, loaded.indices)
    assert torch.equal(saved.labels, loaded.labels)
    assert (saved.filled, saved.seen) == (loaded.filled, loaded.seen)


def test_a_saved_state_does_not_move_with_the_memory() -> None:
    memory = filled_with(10)
    state = memory.state()
    memory.write(torch.tensor([0]), torch.tensor([99]), torch.tensor([9]))
    assert state["indices"][0] == 0
