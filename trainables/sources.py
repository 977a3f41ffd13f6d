"""Read each dataset from where its publisher put it, as uint8 images and labels."""

import gzip
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oclgrid.trainables.schema import SpecError


@dataclass(frozen=True, slots=True)
class Images:
    """Images of one split, N x H x W x 3 uint8, with their class ids."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]


class Splits(NamedTuple):
    """Training and test images of one dataset."""

    train: Images
    test: Images


class MissingDataError(SpecError):
    """The dataset's files are not there."""


class BrokenDataError(SpecError):
    """Files are there, but they are not the whole dataset, or not as published."""


def digits(root: Path, download: bool) -> Splits:
    """Return scikit-learn's 1,797 handwritten digits at 16 x 16; every fifth of a class is test.

    Pixels are repeated and scaled in whole numbers, so that no library's interpolation or
    rounding can change the digest.
    """
    del root, download  # embedded in scikit-learn
    table = _digits_table()
    labels = table[:, -1]
    small = table[:, :-1].reshape(-1, 8, 8) * 255 // 16
    large = small.repeat(2, axis=1).repeat(2, axis=2).astype(np.uint8)
    images = np.repeat(large[..., None], 3, axis=3)
    position = np.zeros(len(labels), dtype=np.int64)
    for c in range(10):
        position[labels == c] = np.arange((labels == c).sum())
    is_test = position % 5 == 4
    return Splits(
        Images(images[~is_test], labels[~is_test]), Images(images[is_test], labels[is_test])
    )


def _digits_table() -> npt.NDArray[np.int64]:
    """Return 64 pixels and the class of each digit, without the seconds of importing sklearn."""
    package = find_spec("sklearn")
    assert package is not None  # a dependency of ours
    assert package.origin is not None
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as lines:
        return np.loadtxt(lines, delimiter=",").astype(np.int64)


def cifar10(root: Path, download: bool) -> Splits:
    """Return CIFAR-10 from torchvision's layout; its MD5 sums are checked before unpickling."""
    from torchvision.datasets import CIFAR10

    return _cifar(CIFAR10, root, download)


def cifar100(root: Path, download: bool) -> Splits:
    """Return CIFAR-100 with its fine labels, like CIFAR-10."""
    from torchvision.datasets import CIFAR100

    return _cifar(CIFAR100, root, download)


def _cifar(kind: Any, root: Path, download: bool) -> Splits:
    try:
        parts = [kind(str(root), train=train, download=download) for train in (True, False)]
    except RuntimeError as error:  # torchvision's word for absent or corrupted files
        is_there = (root / kind.base_folder).exists()
        raise (BrokenDataError if is_there else MissingDataError)(str(error)) from error
    train, test = (Images(p.data, np.asarray(p.targets, dtype=np.int64)) for p in parts)
    return Splits(train, test)
