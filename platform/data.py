"""What is known of the data on this machine, in lines for people."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.decoded import (
    UNDECODED,
    Decodable,
    cache_path,
    known_digest,
    load,
    remedy,
)
from oclgrid.trainables.outliers import OUTLIERS
from oclgrid.trainables.schema import SpecError, unknown
from oclgrid.trainables.sources import MissingDataError
from oclgrid.trainables.spec import CellSpec


def data_lines(name: str | None, root: Path, *, download: bool) -> Iterator[str]:
    """Yield the state of one dataset, or refuse it with the reason; of all if none is named."""
    known: dict[str, Decodable] = {**DATASETS, **OUTLIERS}
    if name is not None and name not in known:
        raise unknown("dataset", name, known)
    if download and name is None:
        raise SpecError("--download needs the name of a dataset")
    if name is not None:
        load(known[name], root, download=download)
        yield _line(known[name], "complete", _place(known[name], root))
        return
    yield f"data folder: {root}"
    for what in known.values():
        yield _line(what, *_state(what, root))


def undecoded_lines(cells: Iterable[CellSpec]) -> Iterator[str]:
    """Yield what to know of cells whose data has no digest yet: no result can be found for them."""
    for name in sorted({c.dataset for c in cells if c.data_digest == UNDECODED}):
        yield (
            f"{name} is not decoded below the data folder, so results on it cannot be told from "
            f"others; decode it with `oclgrid data {name}` or name another folder with --data"
        )


@contextmanager
def telling(say: Callable[[str], None]) -> Iterator[None]:
    """Say what decoding logs of its progress, as long as the block lasts."""
    logger = logging.getLogger("oclgrid.trainables")
    handler, level = _Teller(say), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Teller(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


def _line(what: Decodable, state: str, details: str) -> str:
    return f"{what.name:14}{state:10}{details}"


def _state(what: Decodable, root: Path) -> tuple[str, str]:
    """Return "complete", "missing" or "broken", and where or why and what to do."""
    try:
        load(what, root)
    except MissingDataError:
        place = f"looked for {what.looked_for}; " if what.can_download else ""
        return "missing", f"{place}{remedy(what)}"
    except SpecError as error:
        return "broken", str(error)
    return "complete", _place(what, root)


def _place(what: Decodable, root: Path) -> str:
    """Return where the data is, with its digest where that tells one source from another."""
    if what.is_embedded:
        return "comes with the installation"
    mark = f", digest {known_digest(what, root)[:16]}" if what.digest == UNDECODED else ""
    return f"{cache_path(what, root)}{mark}"
