"""`oclgrid store copy`: bring the runs of one store into another."""

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from oclgrid.platform.commands import DONE, SOME_FAILED

if TYPE_CHECKING:
    from oclgrid.platform.display import Display
    from oclgrid.platform.location import Location
    from oclgrid.platform.store import Store

TOLD_SECONDS = 5.0


def store(options: Any) -> int:
    """Copy what the target lacks, compare every copy, and say how much that was."""
    from oclgrid.platform.display import Display
    from oclgrid.platform.location import find_store
    from oclgrid.trainables.schema import SpecError

    source, target = find_store(options.source), find_store(options.target)
    if source.resolved == target.resolved:
        raise SpecError(f"FROM and TO are the same store, {options.source}; name another")
    if not source.exists:
        raise SpecError(f"there is no store in {options.source} to copy; check FROM")
    return _copy(source, target, Display())


def _copy(source: "Location", target: "Location", display: "Display") -> int:
    with ExitStack() as stack:
        with display.phase("opening both stores"):
            opened = [_opened(place, stack) for place in (source, target)]
        from oclgrid.platform.claims import Driver
        from oclgrid.platform.store_copy import CopyError, copy_store

        driver = stack.enter_context(Driver(opened[1], is_only=target.folder is not None))
        stack.enter_context(driver.alone())
        try:
            done = copy_store(opened[0], opened[1], driver.claimant, _Told(display))
        except CopyError as error:
            print(f"oclgrid: {error}", file=sys.stderr)
            return SOME_FAILED
    print(f"{done.copied} runs copied and compared, {done.present} were there")
    for name, who in done.busy.items():
        print(f"oclgrid: {name} was left out: {who} works on it; copy again when it is done",
              file=sys.stderr)  # fmt: skip
    return SOME_FAILED if done.busy else DONE


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
