import hashlib
import logging
import pickle
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from oclgrid.platform.checks import check_data
from oclgrid.search_spaces.sweep import on_data, parse_sweep
from oclgrid.trainables.datasets import DATASETS, dataset, load
from oclgrid.trainables.decoded import UNDECODED, cache_path, digest, known_digest
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.miniimagenet import PICKLES, Counts, miniimagenet, split_of
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.sources import BrokenDataError, MissingDataError, Splits

TINY = Counts(pickled_classes=(2, 1, 1), train=5, test=2, side=8)
NAMES = ["n00000003", "n00000005", "n00000010", "n00000020"]
INFO = replace(
    dataset("miniimagenet"),
    classes=4,
    stages=2,
    side=8,
    read=partial(miniimagenet, counts=TINY),
)


def read(root: Path) -> Splits:
    return miniimagenet(root, False, TINY)


def shade(label: int, image: int) -> int:
    """The one grey of a picture; far enough from the others to survive JPEG."""
    return 30 * label + 4 * image + 20


def picture(folder: Path, label: int, image: int, side: int = 8) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    grey = shade(label, image)
    Image.new("RGB", (side, side), (grey, grey, grey)).save(folder / f"{image:03}.jpg")


def folder(root: Path, *, split: str | None = None) -> Path:
    """Write the pictures, in one folder per class or already split with ``split`` for test."""
    place = root / "mini-imagenet"
    for label, name in enumerate(NAMES):
        for image in range(TINY.per_class):
            half = "" if split is None else split if image < TINY.test else "train"
            picture(place / half / name, label, image)
    return place


def pickles(root: Path, **changes: Any) -> list[Path]:
    """Write the three pickles; ``changes`` go into the first."""
    first = 0
    for name, classes in zip(PICKLES, TINY.pickled_classes, strict=True):
        labels = range(first, first + classes)
        grey = [shade(c, i) for c in labels for i in range(TINY.per_class)]
        images = np.zeros((len(grey), 8, 8, 3), dtype=np.uint8)
        images[:] = np.array(grey, dtype=np.uint8)[:, None, None, None]
        rows = {
            NAMES[c]: [*range(i * TINY.per_class, (i + 1) * TINY.per_class)]
            for i, c in enumerate(labels)
        }
        content = {"image_data": images, "class_dict": rows, **(changes if first == 0 else {})}
        root.mkdir(exist_ok=True)
        (root / name).write_bytes(pickle.dumps(content))
        first += classes
    return [root / name for name in PICKLES]


def greys(images: npt.NDArray[np.uint8]) -> list[int]:
    """Return the grey of each picture, as precisely as JPEG keeps it."""
    return [round(float(image.mean())) for image in images]


def split_in_words(label: int) -> tuple[list[int], list[int]]:
    """The split as its docstring says it: shuffled by digest, the first are test."""
    keyed = []
    for i in range(7):
        key = hashlib.sha256(f"mini-imagenet, class {label}, image {i}".encode()).hexdigest()
        keyed.append((key, i))
    shuffled = [i for _, i in sorted(keyed)]
    return shuffled[2:], shuffled[:2]


@pytest.mark.parametrize("write", [pickles, folder])
def test_600_images_a_class_are_shuffled_and_the_first_100_are_test(
    tmp_path: Path, write: Any
) -> None:
    write(tmp_path)
    splits = read(tmp_path)
    for which, part in enumerate(splits):
        expected = [(c, i) for c in range(4) for i in split_in_words(c)[which]]
        assert part.labels.tolist() == [c for c, _ in expected]
        assert greys(part.images) == [shade(c, i) for c, i in expected]
        assert part.images.dtype == np.uint8
        assert part.images.shape[1:] == (8, 8, 3)


def test_the_whole_split_is_100_of_600_and_never_changes() -> None:
    train, test = split_of(42, Counts())
    assert (len(train), len(test)) == (500, 100)
    assert sorted(train + test) == [*range(600)]
    assert test[:6] == [436, 376, 538, 437, 300, 255]


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_folder_that_is_split_already_stays_so(tmp_path: Path, split: str) -> None:
    folder(tmp_path, split=split)
    splits = read(tmp_path)
    assert greys(splits.test.images) == [shade(c, i) for c in range(4) for i in range(2)]
    assert greys(splits.train.images) == [shade(c, i) for c in range(4) for i in range(2, 7)]
    assert splits.train.labels.tolist() == [c for c in range(4) for _ in range(5)]


def test_pickles_are_also_found_in_the_folder_and_come_first(tmp_path: Path) -> None:
    folder(tmp_path, split="val")
    pickles(tmp_path / "mini-imagenet")
    whole = tmp_path / "other"
    pickles(whole)
    assert digest(read(tmp_path)) == digest(read(whole))


def test_pictures_of_another_size_are_resized_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = folder(tmp_path, split="val")
    before = read(tmp_path)
    picture(place / "val" / NAMES[1], 1, 0, side=20)
    assert greys(read(tmp_path).test.images) == greys(before.test.images)
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert record.getMessage().startswith("1 of 8 pictures were not 8 x 8 and were resized")


def test_a_large_picture_is_resized_as_pillow_does_with_antialiasing(tmp_path: Path) -> None:
    place = folder(tmp_path, split="val")
    pixels = np.random.default_rng(0).integers(0, 256, (30, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(place / "val" / NAMES[0] / "000.png")
    (place / "val" / NAMES[0] / "000.jpg").unlink()
    found = read(tmp_path).test.images[0].astype(int)
    for row, column in ((0, 0), (4, 5), (7, 7)):
        down, across = 30 / 8, 24 / 8
        total = weight = np.zeros(3)
        for y in range(30):
            for x in range(24):
                near = max(0.0, 1 - abs((y + 0.5) / down - row - 0.5)) * max(
                    0.0, 1 - abs((x + 0.5) / across - column - 0.5)
                )
                total, weight = total + near * pixels[y, x], weight + near
        assert np.abs(found[row, column] - total / weight).max() <= 1


def test_nothing_there_is_missing_and_the_remedy_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        load(INFO, tmp_path)
    message = str(caught.value)
    assert f"not complete below {tmp_path}" in message
    for layout in ("{train,val,test}.pkl", "{train,val}/<wordnet id>/*.jpg", "/<wordnet id>/*.jpg"):
        assert layout in message
    assert "--download" not in message


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: (p / "train" / NAMES[1] / "004.jpg").unlink(), "n00000005 has 4 images, exp"),
        (lambda p: picture(p / "val" / NAMES[2], 2, 9), "n00000010 has 3 images, expected 2"),
        (lambda p: shutil.rmtree(p / "val" / NAMES[3]), "class n00000020 is in only one of"),
        (lambda p: shutil.rmtree(p / "val"), r"class n\d+ is in only one of"),
        (lambda p: [shutil.rmtree(p / h / NAMES[0]) for h in ("train", "val")], "has 3 classes, e"),
        (lambda p: (p / "val" / NAMES[0] / "001.jpg").write_bytes(b""), "001.jpg cannot be dec"),
    ],
)
def test_an_incomplete_folder_is_refused_by_name_and_count(
    tmp_path: Path, spoil: Any, words: str
) -> None:
    spoil(folder(tmp_path, split="val"))
    with pytest.raises(BrokenDataError, match=words):
        load(INFO, tmp_path)
    assert not cache_path(INFO, tmp_path).exists()


def test_a_truncated_picture_is_refused_by_name(tmp_path: Path) -> None:
    file = folder(tmp_path) / NAMES[2] / "003.jpg"
    content = file.read_bytes()
    for length in (1, len(content) // 2, len(content) - 20):
        file.write_bytes(content[:length])
        with pytest.raises(BrokenDataError, match=r"n00000010/003.jpg cannot be decoded"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"class_dict": {NAMES[0]: [*range(6)], NAMES[1]: []}}, "n00000003 has 6 images, exp"),
        ({"class_dict": {NAMES[0]: [*range(1, 8)]}}, "n00000003 do not follow"),
        ({"class_dict": {NAMES[0]: [*range(7)]}}, "has 1 classes"),
        ({"class_dict": {NAMES[0]: 3}}, "n00000003 has 0 images"),
        ({"class_dict": {NAMES[0]: ["x"] * 7}}, "n00000003 do not follow"),
        ({"class_dict": 3}, "no image_data"),
        ({"image_data": np.zeros((13, 8, 8, 3), np.uint8)}, r"images \(13, 8, 8, 3\), expected"),
        ({"image_data": np.zeros((14, 9, 9, 3), np.uint8)}, r"images \(14, 9, 9, 3\), expected"),
        ({"image_data": None}, "no image_data"),
    ],
)
def test_an_incomplete_pickle_is_refused_by_name_and_count(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    pickles(tmp_path, **changes)
    with pytest.raises(BrokenDataError, match=rf"cache-train.pkl.*{words}"):
        read(tmp_path)


def test_a_missing_pickle_is_named(tmp_path: Path) -> None:
    pickles(tmp_path)[2].unlink()
    with pytest.raises(BrokenDataError, match=r"mini-imagenet-cache-test.pkl is missing"):
        load(INFO, tmp_path)


def test_the_digest_of_what_was_decoded_is_kept_and_found_again(tmp_path: Path) -> None:
    assert known_digest(INFO, tmp_path) == UNDECODED
    folder(tmp_path)
    splits = load(INFO, tmp_path)
    assert known_digest(INFO, tmp_path) == digest(splits) == digest(read(tmp_path))


def test_cells_get_the_data_they_were_made_for_or_a_reason(tmp_path: Path) -> None:
    folder(tmp_path / "a", split="val")
    folder(tmp_path / "b")  # split by us
    first, second = (digest(load(INFO, tmp_path / root)) for root in "ab")
    assert first != second
    assert digest(load(INFO, tmp_path / "a", wanted=first)) == first
    for wanted in (second, UNDECODED):
        with pytest.raises(SpecError, match=r"wants miniimagenet .* copy that file from"):
            load(INFO, tmp_path / "a", wanted=wanted)


def test_a_damaged_copy_is_refused_though_no_digest_is_published(tmp_path: Path) -> None:
    folder(tmp_path)
    image = load(INFO, tmp_path).train.images[3].tobytes()
    cache = cache_path(INFO, tmp_path)
    content = cache.read_bytes()
    cache.unlink()  # a mapped file must not change under its readers
    cache.write_bytes(content.replace(image, bytes(len(image))))
    with pytest.raises(BrokenDataError, match=r"is not what was decoded .* delete it"):
        load(INFO, tmp_path)


def test_a_cell_runs_on_the_data_it_was_planned_for_and_on_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATASETS, "miniimagenet", INFO)
    folder(tmp_path, split="val")
    cells = {"dataset": "miniimagenet", "memory": 4, "orders": 1, "method": "er"}
    planned = parse_sweep({"sweep": "x", "cells": cells}, where="x")
    with pytest.raises(SpecError, match="wants miniimagenet with digest not decoded yet"):
        Cell(planned.cells[0], tmp_path)
    check_data(planned.cells, tmp_path)  # decodes
    (spec,) = on_data(planned, tmp_path).cells
    assert Cell(spec, tmp_path).run_stage().trained_images == 80  # 10 x 8, with an empty memory
