"""`oclgrid store copy`: bring the runs of one store, or the cells of an export, into another."""

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oclgrid.platform.commands import DONE, SOME_FAILED

if TYPE_CHECKING:
    from oclgrid.platform.display import Display
    from oclgrid.platform.export import Row
    from oclgrid.platform.location import Location
    from oclgrid.platform.store import Store

EXPORT = ".parquet"
"""How the name of an export ends."""
TOLD_SECONDS = 5.0


def store(options: Any) -> int:
    """Copy what the target lacks, compare every copy, and say how much that was."""
    from oclgrid.platform.display import Display
    from oclgrid.platform.location import find_store
    from oclgrid.trainables.schema import SpecError

    target = find_store(options.target)
    if options.source.endswith(EXPORT):
        from oclgrid.platform.export import read_rows

        return _copy(read_rows(Path(options.source)), target, Display())
    source = find_store(options.source)
    if source.resolved == target.resolved:
        raise SpecError(f"FROM and TO are the same store, {options.source}; name another")
    if not source.exists:
        raise SpecError(f"there is no store in {options.source} to copy; check FROM")
    return _copy(source, target, Display())


def _copy(source: "Location | dict[str, Row]", target: "Location", display: "Display") -> int:
    with ExitStack() as stack:
        is_export = isinstance(source, dict)
        with display.phase("opening the store" if is_export else "opening both stores"):
            origin = source if isinstance(source, dict) else _opened(source, stack)
            there = _opened(target, stack)
        from oclgrid.platform.claims import Driver
        from oclgrid.platform.store_copy import CopyError, copy_store
        from oclgrid.platform.store_import import import_rows

        driver = stack.enter_context(Driver(there, is_only=target.folder is not None))
        stack.enter_context(driver.alone())
        told = _Told(display)
        try:
            if isinstance(origin, dict):
                done = import_rows(origin, there, driver.claimant, told)
            else:
                done = copy_store(origin, there, driver.claimant, told)
        except CopyError as error:
            print(f"oclgrid: {error}", file=sys.stderr)
            return SOME_FAILED
    print(f"{done.copied} runs copied and compared, {done.present} were there")
    left = {n: f"{who} works on it; copy again when it is done" for n, who in done.busy.items()}
    left |= {c: f"{why}; run its sweep instead" for c, why in done.refused.items()}
    for name, why in left.items():
        print(f"oclgrid: {name} was left out: {why}", file=sys.stderr)
    return SOME_FAILED if left else DONE


def _opened(place: "Location", stack: ExitStack) -> "Store":
    stack.enter_context(place.claimed())
    server = stack.enter_context(place.serving())
    from oclgrid.platform.store import Store

    if server is not None:
        server.wait()
    return Store(server.uri if server else place.reading_uri)


class _Told:
    """Says now and then how far it is."""

    def __init__(self, display: "Display") -> None:
        self._display, self._at = display, time.monotonic()

    def __call__(self, number: int, of: int, name: str) -> None:
        if time.monotonic() - self._at >= TOLD_SECONDS:
            self._at = time.monotonic()
            self._display.say(f"[{number}/{of}] {name}")
