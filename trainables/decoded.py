"""One memory-mapped Arrow file for each dataset: written whole or not at all, checked by digest."""

import fcntl
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.sources import BrokenDataError, Images, MissingDataError

logger = logging.getLogger(__name__)

UNDECODED = "not decoded yet"
"""Stands for the digest of a dataset without a published one, until its files are decoded."""
DECODING_SECONDS = 1800.0
"""How long to wait for another process that decodes; after that it is done here as well."""
SETTLED_SECONDS = 2.0
"""A file this old changes its time stamp when it is written again, whatever the clock's grain."""
_checked: dict[tuple[str | int, ...], str] = {}
"""Digest of each file as this process has seen it, by path, inode, size and times of change."""


class Decodable(Protocol):
    """What is known of a dataset before any of its files is read."""

    @property
    def name(self) -> str:
        """The name it goes by on the command line."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of its images."""

    @property
    def digest(self) -> str:
        """Sha256 of the decoded images and labels; UNDECODED where none can be published."""

    @property
    def read(self) -> Callable[[Path, bool], tuple[Images, ...]]:
        """Decode the files below a folder, fetching them first if told to."""

    @property
    def looked_for(self) -> str:
        """The files, below the data folder."""

    @property
    def can_download(self) -> bool:
        """Whether ``read`` can fetch them."""

    @property
    def is_embedded(self) -> bool:
        """Whether it comes with the installation, so that nothing is looked for or cached."""


def load(
    what: Decodable, root: Path, *, download: bool = False, wanted: str | None = None
) -> tuple[Images, ...]:
    """Return the parts of a dataset, memory-mapped and checked against their digest.

    The first call decodes the published files into one Arrow file beside them; later calls, from
    any process of the machine, map that file and share its pages.

    Args:
        what: The dataset.
        root: The folder below which its files lie.
        download: Whether to fetch files that are missing.
        wanted: The digest it must have; None accepts what is there.
    """
    if wanted is not None and what.digest not in (UNDECODED, wanted):
        raise SpecError(
            f"the cell wants {what.name} with digest {wanted[:16]} but this version knows "
            f"{what.digest[:16]}; read the sweep anew"
        )
    if what.is_embedded:
        parts = what.read(root, download)
        if what.digest != UNDECODED:
            _check(what, digest(parts), "the installation")
        return parts
    cache = cache_path(what, root)
    if not cache.exists():
        with _alone(root):
            if not cache.exists():
                _decode(what, root, download)
    parts, found = _map_checked(what, cache)
    if wanted not in (None, found):
        raise SpecError(
            f"the cell wants {what.name} with digest {wanted[:16]} but {cache} has {found[:16]}; "
            f"copy that file from the machine that began the sweep, or read the sweep anew"
        )
    return parts


def cache_path(what: Decodable, root: Path) -> Path:
    """Return where the decoded copy of a dataset lies."""
    mark = "" if what.digest == UNDECODED else f"-{what.digest[:16]}"
    return root / "oclgrid" / f"{what.name}{mark}.arrow"


def remedy(what: Decodable) -> str:
    """Return how to get a dataset's files."""
    if what.can_download:
        return f"get it with `oclgrid data {what.name} --download`"
    return f"put there {what.looked_for}"


def known_digest(what: Decodable, root: Path) -> str:
    """Return the digest a cell on this data has, without reading the images."""
    cache = cache_path(what, root)
    if what.digest != UNDECODED or what.is_embedded or not cache.exists():
        return what.digest
    return _open(what, cache)[1]


def digest(parts: tuple[Images, ...]) -> str:
    """Return the sha256 over images and labels of all parts."""
    h = hashlib.sha256()
    for part in parts:
        h.update(f"{part.images.shape}".encode())
        h.update(np.ascontiguousarray(part.images).data)
        h.update(np.ascontiguousarray(part.labels).data)
    return h.hexdigest()


def _decode(what: Decodable, root: Path, download: bool) -> None:
    """Read the published files and write the Arrow file."""
    try:
        parts = what.read(root, download)
    except (MissingDataError, BrokenDataError, OSError) as error:
        kind = MissingDataError if isinstance(error, MissingDataError) else BrokenDataError
        raise kind(
            f"dataset {what.name!r} is not complete below {root} ({' '.join(str(error).split())}); "
            f"{remedy(what)} or name another folder with --data"
        ) from error
    found = digest(parts)
    _check(what, found, str(root))
    cache = cache_path(what, root)
    try:
        _write(parts, cache, found)
    except OSError as error:
        raise SpecError(
            f"cannot write {cache} ({error.strerror}); name a folder with room by --data"
        ) from error


def _check(what: Decodable, found: str, place: str) -> None:
    if what.digest not in (UNDECODED, found):
        raise BrokenDataError(
            f"dataset {what.name!r} from {place} is not the published one "
            f"(digest {found[:16]}, expected {what.digest[:16]}); delete it and get it anew"
        )


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Let one process at a time decode, so that the others find its file.

    It only spares work: files are replaced whole, so where a folder cannot be locked, or the
    other takes too long, both may write. A process that dies loses its lock.
    """
    if not os.access(root, os.R_OK):  # not there, most likely
        yield
        return
    handle = os.open(root, os.O_RDONLY)
    try:
        deadline = time.monotonic() + DECODING_SECONDS
        is_told = False
        while not _locked(handle) and time.monotonic() < deadline:
            if not is_told:
                logger.info("waiting for another process that decodes below %s", root)
                is_told = True
            time.sleep(0.1)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Return False while another process holds the lock."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _write(parts: tuple[Images, ...], path: Path, found: str) -> None:
    """Write the Arrow file whole or not at all; simultaneous writers write the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f"{path.name}*.part"):  # by writers that were killed
        if time.time() - left.stat().st_mtime > DECODING_SECONDS:
            left.unlink(missing_ok=True)
    pixels = int(np.prod(parts[0].images.shape[1:]))
    schema = pa.schema(
        [("image", pa.binary(pixels)), ("label", pa.int64())], metadata={"digest": found}
    )
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for part in parts:
                images = np.ascontiguousarray(part.images)
                column = pa.FixedSizeBinaryArray.from_buffers(
                    pa.binary(pixels), len(images), [None, pa.py_buffer(images)]
                )
                batch = pa.record_batch([column, pa.array(part.labels)], schema=schema)
                writer.write_batch(batch)
        mask = os.umask(0)  # mkstemp makes private files; this one is for all users of the folder
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _open(what: Decodable, cache: Path) -> tuple[tuple[Images, ...], str]:
    """Map the Arrow file; return its parts and the digest they should have."""
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(cache)))
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        expected = what.digest
        if expected == UNDECODED:
            expected = reader.schema.metadata[b"digest"].decode()
        return tuple(_images(batch, what.shape) for batch in batches), expected
    except (pa.ArrowException, OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise BrokenDataError(f"{cache} is damaged ({error}); delete it and try again") from error


def _images(batch: pa.RecordBatch, shape: tuple[int, int, int]) -> Images:
    pixels = np.frombuffer(batch.column(0).buffers()[1], dtype=np.uint8)
    return Images(pixels.reshape(-1, *shape), batch.column(1).to_numpy())


def _map_checked(what: Decodable, cache: Path) -> tuple[tuple[Images, ...], str]:
    """Map the Arrow file and compare it with its digest, once per process and file."""
    status = cache.stat()
    times = (status.st_mtime_ns, status.st_ctime_ns)
    identity = (str(cache), status.st_ino, status.st_size, *times)
    parts, expected = _open(what, cache)
    found = _checked.get(identity) or digest(parts)
    if found != expected:
        raise BrokenDataError(
            f"dataset {what.name!r} from {cache} is not what was decoded "
            f"(digest {found[:16]}, expected {expected[:16]}); delete it and try again"
        )
    if time.time() - status.st_mtime > SETTLED_SECONDS:
        _checked[identity] = found
    return parts, found
