from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from oclgrid.trainables.configs.er import ErConfig
from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.datasets import dataset, load
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.sources import Images, Splits
from oclgrid.trainables.spec import CellSpec
from oclgrid.trainables.stream import Batch, Stream, class_sequence, to_float

DIGITS = dataset("digits")
SPEC = CellSpec(
    dataset="digits",
    data_digest=DIGITS.digest,
    memory_size=50,
    class_order=0,
    seed=0,
    method=ErConfig(),
)
CPU = torch.device("cpu")


@cache
def splits() -> Splits:
    return load(DIGITS, Path("/nonexistent"))


def stream(**changes: Any) -> Stream:
    return Stream(replace(SPEC, **changes), DIGITS, splits(), device=CPU)


def arrived(of: Stream) -> list[int]:
    """Return the positions that arrive, in order, over all stages."""
    return [i for t in range(DIGITS.stages) for b in of.batches(t) for i in b.indices.tolist()]


def evaluated(of: Stream, seen: int = 10) -> tuple[Tensor, Tensor]:
    images, labels = zip(*of.evaluation(seen), strict=True)
    return torch.cat(images), torch.cat(labels)


def as_bytes(images: Tensor) -> list[bytes]:
    rows = (images * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
    return [row.tobytes() for row in rows]


def batches(of: Stream) -> Iterator[tuple[int, Batch]]:
    for stage in range(DIGITS.stages):
        for batch in of.batches(stage):
            yield stage, batch


@pytest.mark.parametrize(
    ("order", "ten", "hundred"),
    [
        (0, (1, 6, 4, 9, 0, 5, 8, 7, 3, 2), (23, 45, 19, 46, 97, 4, 38, 3, 51, 12)),
        (1, (6, 5, 2, 4, 8, 1, 0, 7, 9, 3), (83, 69, 68, 31, 94, 90, 11, 22, 48, 53)),
        (2, (9, 1, 3, 6, 7, 0, 4, 5, 8, 2), (15, 73, 13, 99, 59, 41, 98, 68, 7, 66)),
    ],
)
def test_class_orders_are_the_stored_ones(
    order: int, ten: tuple[int, ...], hundred: tuple[int, ...]
) -> None:
    assert class_sequence(10, order) == ten
    assert class_sequence(100, order)[:10] == hundred


@pytest.mark.parametrize("order", range(20))
def test_a_class_order_holds_every_class_once(order: int) -> None:
    assert sorted(class_sequence(100, order)) == list(range(100))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 5},
        {"method": SdafConfig()},
        {"memory_size": 3},
        {"protocol": "validation"},
        {"stream_fraction": 0.5},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_class_order_does_not_depend_on(changes: dict[str, Any]) -> None:
    assert stream(class_order=1, **changes).sequence == class_sequence(10, 1)


@pytest.mark.parametrize("order", [0, 1])
def test_classes_arrive_by_their_ids_where_that_is_asked_for(order: int) -> None:
    natural = stream(class_order=order, arrival="natural")
    assert natural.sequence == tuple(range(10))
    brought = splits().train.labels[natural.arrivals(0).numpy()]
    assert set(brought.tolist()) == {0, 1}


def test_repetitions_in_natural_order_differ_by_their_number() -> None:
    one, two = (arrived(stream(class_order=order, arrival="natural")) for order in (0, 1))
    assert one != two


def test_the_class_order_does_not_depend_on_global_randomness() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # the global generator is the point
    assert class_sequence(10, 0) == stream().sequence


def test_the_stream_does_not_depend_on_method_or_memory_size() -> None:
    assert arrived(stream()) == arrived(stream(method=SdafConfig(), memory_size=3))


@pytest.mark.parametrize("changes", [{"seed": 1}, {"class_order": 1}], ids=["seed", "order"])
def test_another_seed_or_order_is_another_stream(changes: dict[str, Any]) -> None:
    assert arrived(stream()) != arrived(stream(**changes))


def test_a_stream_can_be_read_again_and_is_the_same() -> None:
    one = stream()
    assert arrived(one) == arrived(one) == arrived(stream())


@pytest.mark.parametrize("order", [0, 1])
def test_a_stage_brings_exactly_its_classes(order: int) -> None:
    one, found = stream(class_order=order), [set[int]() for _ in range(DIGITS.stages)]
    for stage, batch in batches(one):
        found[stage] |= set(splits().train.labels[batch.indices.numpy()].tolist())
    sequence = class_sequence(10, order)
    assert found == [set(sequence[2 * t : 2 * t + 2]) for t in range(DIGITS.stages)]


def test_labels_are_ranks_of_arrival() -> None:
    sequence = class_sequence(10, 0)
    for stage, batch in batches(stream()):
        ids = splits().train.labels[batch.indices.numpy()].tolist()
        assert [sequence[rank] for rank in batch.labels.tolist()] == ids
        assert set(batch.labels.tolist()) <= {2 * stage, 2 * stage + 1}


def test_no_image_arrives_twice_and_fewer_than_a_batch_per_stage_never() -> None:
    found = arrived(stream())
    assert len(found) == len(set(found))
    for stage in range(DIGITS.stages):
        pair = class_sequence(10, 0)[2 * stage : 2 * stage + 2]
        available = int(np.isin(splits().train.labels, pair).sum())
        assert stream().batches_in(stage) == available // 10


def test_batches_hold_ten_images_and_a_short_last_one_is_dropped() -> None:
    one = stream()
    for stage in range(DIGITS.stages):
        sizes = [len(b) for b in one.batches(stage)]
        assert sizes == [10] * one.batches_in(stage)


@pytest.mark.parametrize("size", [1, 7, 32])
def test_batches_have_the_size_asked_for(size: int) -> None:
    one = stream(method=ErConfig(batch_size=size))
    assert {len(b) for _, b in batches(one)} == {size}


def test_a_stage_is_shuffled() -> None:
    first = next(stream().batches(0)).indices.tolist()
    assert first != sorted(first)


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_the_fraction_holds_for_every_class(fraction: float) -> None:
    of_class = [0] * 10
    one = stream(stream_fraction=fraction, method=ErConfig(batch_size=1))
    for i in arrived(one):
        of_class[splits().train.labels[i]] += 1
    available = np.bincount(splits().train.labels)
    assert of_class == [round(int(n) * fraction) for n in available]


def test_a_fraction_is_tested_on_the_whole_test_set() -> None:
    assert len(evaluated(stream(stream_fraction=0.1))[1]) == len(splits().test.labels)


def test_a_larger_fraction_keeps_the_images_of_a_smaller_one() -> None:
    few, many = (
        set(arrived(stream(stream_fraction=f, method=ErConfig(batch_size=1)))) for f in (0.2, 0.6)
    )
    assert few < many


def test_validation_holds_out_a_tenth_of_each_class() -> None:
    labels = evaluated(stream(protocol="validation"))[1]
    sequence = class_sequence(10, 0)
    available = np.bincount(splits().train.labels)
    expected = [round(int(available[c]) * 0.1) for c in sequence]
    assert torch.bincount(labels).tolist() == expected


def test_held_out_images_never_arrive() -> None:
    one = stream(protocol="validation", method=ErConfig(batch_size=1))
    coming = set(arrived(one))
    held = [i for i in range(len(splits().train.labels)) if i not in coming]
    expected = sorted(as_bytes(to_float(splits().train.images[held], CPU)))
    assert sorted(as_bytes(evaluated(one)[0])) == expected


def test_validation_never_looks_at_the_test_set() -> None:
    real = splits()
    blank = Images(np.zeros_like(real.test.images), np.zeros_like(real.test.labels))
    spec = replace(SPEC, protocol="validation")
    with_test = Stream(spec, DIGITS, real, device=CPU)
    without = Stream(spec, DIGITS, Splits(real.train, blank), device=CPU)
    assert torch.equal(evaluated(with_test)[0], evaluated(without)[0])
    assert arrived(with_test) == arrived(without)


def test_the_same_images_are_held_out_in_every_order() -> None:
    held = {
        tuple(sorted(as_bytes(evaluated(stream(protocol="validation", class_order=o))[0])))
        for o in range(3)
    }
    assert len(held) == 1


@pytest.mark.parametrize("seen", [2, 4, 10])
def test_evaluation_covers_exactly_the_classes_seen(seen: int) -> None:
    images, labels = evaluated(stream(), seen)
    sequence = class_sequence(10, 0)
    counts = np.bincount(splits().test.labels)
    assert torch.bincount(labels).tolist() == [int(counts[c]) for c in sequence[:seen]]
    wanted = np.isin(splits().test.labels, sequence[:seen])
    assert sorted(as_bytes(images)) == sorted(as_bytes(to_float(splits().test.images[wanted], CPU)))


@pytest.mark.parametrize(
    ("protocol", "fraction"), [("test", 0.02), ("test", 1e-6), ("validation", 0.02)]
)
def test_a_fraction_that_leaves_a_stage_without_a_batch_is_refused(
    protocol: str, fraction: float
) -> None:
    with pytest.raises(SpecError, match=rf"stream_fraction {fraction} leaves a stage of digits"):
        stream(protocol=protocol, stream_fraction=fraction)


def test_a_batch_larger_than_a_stage_is_refused() -> None:
    with pytest.raises(SpecError, match="without a batch of 1000"):
        stream(method=ErConfig(batch_size=1000))


def test_images_are_bytes_divided_by_255() -> None:
    batch = next(stream().batches(0))
    pixels = splits().train.images[batch.indices.numpy()]
    expected = torch.from_numpy(pixels.astype(np.float32) / 255).permute(0, 3, 1, 2)
    assert batch.images.dtype == torch.float32
    assert torch.equal(batch.images, expected)
    assert (batch.images >= 0).all()
    assert (batch.images <= 1).all()


def test_images_have_their_channels_last_in_memory() -> None:
    batch = next(stream().batches(0))
    assert batch.images.shape == (10, 3, 16, 16)
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    assert evaluated(stream(), 2)[0].is_contiguous(memory_format=torch.channels_last)


def test_fetched_images_are_those_at_the_positions() -> None:
    one, positions = stream(), torch.tensor([5, 0, 5])
    batch = one.fetch(positions)
    assert torch.equal(batch.images[0], batch.images[2])
    assert torch.equal(batch.images, to_float(splits().train.images[[5, 0, 5]], CPU))
    assert torch.equal(batch.indices, positions)
