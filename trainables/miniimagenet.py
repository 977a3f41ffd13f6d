"""Read Mini-ImageNet from the three few-shot pickles or from a folder of pictures."""

import hashlib
import logging
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oclgrid.trainables.array_pickle import load_arrays
from oclgrid.trainables.pictures import decode
from oclgrid.trainables.sources import BrokenDataError, Images, MissingDataError, Splits

logger = logging.getLogger(__name__)

FOLDER = "mini-imagenet"
PICKLES = tuple(f"mini-imagenet-cache-{part}.pkl" for part in ("train", "val", "test"))
SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """How much there must be; the defaults are Mini-ImageNet."""

    pickled_classes: tuple[int, int, int] = (64, 16, 20)
    train: int = 500
    """Per class."""
    test: int = 100
    """Per class."""
    side: int = 84

    @property
    def classes(self) -> int:
        """Classes in all."""
        return sum(self.pickled_classes)

    @property
    def per_class(self) -> int:
        """Images of a class, for training and test."""
        return self.train + self.test


def miniimagenet(root: Path, download: bool, counts: Counts | None = None) -> Splits:
    """Return Mini-ImageNet; where both are complete, the pickles are read."""
    del download  # nobody may publish it; the remedy says what to put where
    counts = counts or Counts()
    folder = root / FOLDER
    missing: list[Path] = []
    for place in (root, folder):
        files = [place / name for name in PICKLES]
        absent = [file for file in files if not file.exists()]
        if not absent:
            return _from_pickles(files, counts)
        if len(absent) < len(files):
            missing += absent
    if _classes(folder) or (folder / "train").is_dir():
        train, test = _pictures(folder, counts)
        return Splits(_decoded(train, counts), _decoded(test, counts))
    if missing:
        raise BrokenDataError(f"{missing[0]} is missing")
    raise MissingDataError("nothing of it is there")


def split_of(label: int, counts: Counts) -> tuple[list[int], list[int]]:
    """Return which images of a class are for training and which for test, by their position.

    Shuffled once, the first are test, as in the reference (methods sheet, 1.1). Sorted by a
    digest, so that the split is the same on every machine and library version, for ever.
    """

    def key(i: int) -> bytes:
        return hashlib.sha256(f"mini-imagenet, class {label}, image {i}".encode()).digest()

    shuffled = sorted(range(counts.per_class), key=key)
    return shuffled[counts.test :], shuffled[: counts.test]


def _from_pickles(files: list[Path], counts: Counts) -> Splits:
    """Stack the classes of the pickles; a label is a class's position among them."""
    parts = [
        Images(
            np.empty((counts.classes * n, counts.side, counts.side, 3), dtype=np.uint8),
            np.repeat(np.arange(counts.classes), n),
        )
        for n in (counts.train, counts.test)
    ]
    label = 0
    for file, classes in zip(files, counts.pickled_classes, strict=True):
        logger.info("reading %s", file)
        for images in _pickled(file, classes, counts):
            for part, chosen in zip(parts, split_of(label, counts), strict=True):
                part.images[part.labels == label] = images[chosen]
            label += 1
    return Splits(*parts)


def _pickled(file: Path, classes: int, counts: Counts) -> npt.NDArray[np.uint8]:
    """Return classes x images x side x side x 3, checked to be sorted by class."""
    content = load_arrays(file)
    images, rows = content.get("image_data"), content.get("class_dict", {})
    if not isinstance(images, np.ndarray) or not isinstance(rows, dict):
        raise BrokenDataError(f"{file} has no image_data")
    blocks = np.arange(classes * counts.per_class).reshape(classes, -1).tolist()
    for name, positions in rows.items():
        found = len(positions) if isinstance(positions, list) else 0
        if found != counts.per_class:
            raise BrokenDataError(
                f"{file}: class {name} has {found} images, expected {counts.per_class}"
            )
        if positions not in blocks:
            raise BrokenDataError(f"{file}: the images of class {name} do not follow each other")
    shape = (classes * counts.per_class, counts.side, counts.side, 3)
    if images.shape != shape or len(rows) not in (0, classes):
        raise BrokenDataError(
            f"{file} has {len(rows)} classes and images {images.shape}, expected {classes}, {shape}"
        )
    return images.reshape(classes, counts.per_class, *shape[1:])


def _pictures(folder: Path, counts: Counts) -> tuple[list[list[Path]], list[list[Path]]]:
    """Return the files of each class for training and for test, counted."""
    if not (folder / "train").is_dir():
        whole = _counted(folder, counts.classes, counts.per_class)
        splits = [split_of(label, counts) for label in range(counts.classes)]
        return (
            [[whole[c][i] for i in train] for c, (train, _) in enumerate(splits)],
            [[whole[c][i] for i in test] for c, (_, test) in enumerate(splits)],
        )
    other = folder / "val" if (folder / "val").is_dir() else folder / "test"
    for name in {c.name for c in _classes(folder / "train")} ^ {c.name for c in _classes(other)}:
        raise BrokenDataError(f"class {name} is in only one of {folder / 'train'} and {other}")
    return (
        _counted(folder / "train", counts.classes, counts.train),
        _counted(other, counts.classes, counts.test),
    )


def _counted(folder: Path, classes: int, per_class: int) -> list[list[Path]]:
    found = _classes(folder)
    if len(found) != classes:
        raise BrokenDataError(f"{folder} has {len(found)} classes, expected {classes}")
    files = [sorted(f for f in c.iterdir() if f.suffix.lower() in SUFFIXES) for c in found]
    for place, inside in zip(found, files, strict=True):
        if len(inside) != per_class:
            raise BrokenDataError(f"{place} has {len(inside)} images, expected {per_class}")
    return files


def _classes(folder: Path) -> list[Path]:
    """Return the folders named by a WordNet id, sorted; a label is a position among them."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if re.fullmatch(r"n\d{8}", p.name) and p.is_dir())


def _decoded(files: list[list[Path]], counts: Counts) -> Images:
    labels = np.repeat(np.arange(counts.classes), [len(f) for f in files])
    images = decode([f for inside in files for f in inside], side=counts.side, mode="RGB")
    return Images(images, labels)
