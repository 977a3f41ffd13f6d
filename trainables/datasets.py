"""The datasets by name: what they are and where they lie."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from oclgrid.trainables import decoded, sources
from oclgrid.trainables.decoded import UNDECODED
from oclgrid.trainables.miniimagenet import miniimagenet
from oclgrid.trainables.schema import unknown
from oclgrid.trainables.sources import Splits


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """What is known of a dataset before any of its files is read."""

    name: str
    about: str
    classes: int
    stages: int
    side: int
    """Height and width of the images."""
    train_images: int = 50_000
    test_images: int = 10_000
    digest: str
    """sha256 of the decoded images and labels; UNDECODED where it depends on which files one has,
    see ``decoded.known_digest``."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    read: Callable[[Path, bool], Splits]
    looked_for: str = ""
    """The files, below the data folder."""
    can_download: bool = True
    is_embedded: bool = False
    """Whether it comes with the installation, so that nothing is looked for or cached."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images."""
        return self.side, self.side, 3

    @property
    def classes_per_stage(self) -> int:
        """C_t: new classes in each stage."""
        return self.classes // self.stages


DATASETS = {
    d.name: d
    for d in (
        Dataset(
            name="digits",
            about="scikit-learn's handwritten digits, 1,797 images, comes with the installation",
            classes=10,
            stages=5,
            side=16,
            train_images=1_442,
            test_images=355,
            digest="3d69baa33d5762675a06bb28532a835f419114402a69994303e267e61feeb88f",
            mean=(0.3043, 0.3043, 0.3043),
            std=(0.3761, 0.3761, 0.3761),
            read=sources.digits,
            is_embedded=True,
        ),
        Dataset(
            name="cifar10",
            about="CIFAR-10, 60,000 photographs in 10 classes (torchvision's layout)",
            classes=10,
            stages=5,
            side=32,
            digest="85d212b49fbcdd74bd5059429cc84be1bc8a65ab11159c9b87ba6abfa74d8e0f",
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
            read=sources.cifar10,
            looked_for="cifar-10-batches-py/",
        ),
        Dataset(
            name="cifar100",
            about="CIFAR-100, 60,000 photographs in 100 classes (torchvision's layout)",
            classes=100,
            stages=10,
            side=32,
            digest="9241c80b67a52f0e22805a247d0bcdfeb0950a529f23a5d4219ad5b51b9d7fc3",
            mean=(0.5071, 0.4865, 0.4409),
            std=(0.2673, 0.2564, 0.2762),
            read=sources.cifar100,
            looked_for="cifar-100-python/",
        ),
        Dataset(
            name="miniimagenet",
            about="Mini-ImageNet, 60,000 photographs in 100 classes (pickles or JPEG files)",
            classes=100,
            stages=10,
            side=84,
            digest=UNDECODED,
            mean=(0.4734, 0.4496, 0.4053),
            std=(0.2705, 0.2644, 0.2766),
            read=miniimagenet,
            looked_for="mini-imagenet-cache-{train,val,test}.pkl, or mini-imagenet/{train,val}/"
            "<wordnet id>/*.jpg (500 + 100 a class), or mini-imagenet/<wordnet id>/*.jpg (600)",
            can_download=False,
        ),
    )
}


def dataset(name: str) -> Dataset:
    """Return the dataset of that name."""
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    return DATASETS[name]


def data_root(given: str | None = None) -> Path:
    """Return the folder below which datasets are looked for."""
    return Path(given or os.environ.get("OCLGRID_DATA") or "~/.cache/oclgrid").expanduser()


def load(info: Dataset, root: Path, *, download: bool = False, wanted: str | None = None) -> Splits:
    """Return training and test images, memory-mapped and checked; see ``decoded.load``."""
    return Splits(*decoded.load(info, root, download=download, wanted=wanted))
