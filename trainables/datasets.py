"""The datasets by name: what they are, where they lie, and one memory-mapped copy of each."""

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from oclgrid.trainables import sources
from oclgrid.trainables.schema import SpecError, unknown
from oclgrid.trainables.sources import Images, MissingDataError, Splits


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """What is known of a dataset before any of its files is read."""

    name: str
    about: str
    classes: int
    stages: int
    side: int
    """Height and width of the images."""
    digest: str
    """sha256 of the decoded images and labels."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    read: Callable[[Path, bool], Splits]
    is_embedded: bool = False
    """Whether it comes with the installation, so that nothing is looked for or cached."""

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


def load(info: Dataset, root: Path, *, download: bool = False) -> Splits:
    """Return the dataset, memory-mapped and checked against its digest.

    The first call decodes the published files into one Arrow file beside them; later calls, from
    any process of the machine, map that file and share its pages.
    """
    if info.is_embedded:
        return _checked(info, info.read(root, download), "the installation")
    cache = cache_path(info, root)
    if not cache.exists():
        try:
            splits = info.read(root, download)
        except (MissingDataError, OSError) as error:
            raise SpecError(
                f"dataset {info.name!r} is not complete below {root} "
                f"({' '.join(str(error).split())}); get it with "
                f"`oclgrid data {info.name} --download` or name another folder with --data"
            ) from error
        try:
            _write(_checked(info, splits, str(root)), cache)
        except OSError as error:
            raise SpecError(
                f"cannot write {cache} ({error.strerror}); name a folder with room by --data"
            ) from error
    try:
        splits = _map(cache, info.side)
    except (pa.ArrowException, OSError, ValueError, IndexError, KeyError) as error:
        raise SpecError(f"{cache} is damaged ({error}); delete it and try again") from error
    return _checked(info, splits, str(cache))


def cache_path(info: Dataset, root: Path) -> Path:
    """Return where the decoded copy of a dataset lies."""
    return root / "oclgrid" / f"{info.name}-{info.digest[:16]}.arrow"


def digest(splits: Splits) -> str:
    """Return the sha256 over images and labels of both splits."""
    h = hashlib.sha256()
    for part in (splits.train, splits.test):
        h.update(f"{part.images.shape}".encode())
        h.update(np.ascontiguousarray(part.images).data)
        h.update(np.ascontiguousarray(part.labels).data)
    return h.hexdigest()


def _checked(info: Dataset, splits: Splits, place: str) -> Splits:
    found = digest(splits)
    if found != info.digest:
        raise SpecError(
            f"dataset {info.name!r} from {place} is not the published one "
            f"(digest {found[:16]}, expected {info.digest[:16]}); delete it and get it anew"
        )
    return splits


def _write(splits: Splits, path: Path) -> None:
    """Write the Arrow file whole or not at all; simultaneous writers write the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = int(np.prod(splits.train.images.shape[1:]))
    schema = pa.schema([("image", pa.binary(pixels)), ("label", pa.int64())])
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for part in (splits.train, splits.test):
                images = np.ascontiguousarray(part.images)
                column = pa.FixedSizeBinaryArray.from_buffers(
                    pa.binary(pixels), len(images), [None, pa.py_buffer(images)]
                )
                writer.write_batch(pa.record_batch([column, pa.array(part.labels)], schema=schema))
        mask = os.umask(0)  # mkstemp makes private files; this one is for all users of the folder
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _map(path: Path, side: int) -> Splits:
    reader = pa.ipc.open_file(pa.memory_map(str(path)))

    def split(index: int) -> Images:
        batch = reader.get_batch(index)
        pixels = np.frombuffer(batch.column(0).buffers()[1], dtype=np.uint8)
        return Images(pixels.reshape(-1, side, side, 3), batch.column(1).to_numpy())

    return Splits(split(0), split(1))
