"""Who works on which cell: claims of drivers, kept in the store, so that no two work on one.

A driver is a run of kind "driver" that lasts as long as its command. Its claims are tags of that
run, and its beat is a tag that it changes every few seconds. MLflow cannot compare and set a tag.
What it promises, over SQLite and over PostgreSQL, is that a read which begins after a write was
answered sees that write. So of two drivers that first write a claim and then read those of all
others, at least one sees the other and gives way.

A driver whose beat stands still for a lease is gone: whoever watched it deletes its run, and with
that its claims. Its workers, should they still live, see the deleted run and file nothing more.

Assumed: clocks run equally fast; what they show is never compared, a lease is counted by whoever
watches, while the store answers. A write arrives within a lease of the look at the claim before
it. The database that is read is the one that is written to, not a copy that lags behind.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oclgrid.trainables.cell import ElsewhereError, TransientError

if TYPE_CHECKING:
    from oclgrid.platform.store import Store

logger = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
BEAT_SECONDS = 5.0
POLL_SECONDS = 0.2
ALONE_SECONDS = 900.0
"""How long a driver waits for others that create or file runs."""
KIND, BEAT, WHO, PROCESS, CLAIM = "driver", "driver.beat", "driver.who", "driver.process", "claim."
TRYING, HELD = "trying", "held"
RUNS = "runs"
"""What who creates or files runs of sweeps and cells claims, so that each is there once."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """A driver as its workers know it."""

    driver: str
    """Id of its run."""

    def claim(self, store: "Store", key: str) -> None:
        """Return once the key is ours; raise ElsewhereError, saying whose it is, if it is not."""
        if self.check(store).get(CLAIM + key) == HELD:
            return
        self._set(store, key, TRYING)
        deadline = time.monotonic() + 2 * LEASE_SECONDS
        while rivals := self._rivals(store, key):
            # The least id stays until the others have given way or one of them holds the claim.
            first, other = min(rivals.items())
            if HELD in (r[CLAIM + key] for r in rivals.values()) or first < self.driver:
                self.give_up(store, key)
                raise ElsewhereError(other[WHO])
            if time.monotonic() > deadline:
                self.give_up(store, key)
                raise TransientError(f"{other[WHO]} neither took the claim on {key} nor left it")
            time.sleep(POLL_SECONDS)
        self._set(store, key, HELD)

    def give_up(self, store: "Store", key: str) -> None:
        """Leave the key to others."""
        store.remove_tag(self.driver, CLAIM + key)

    def _set(self, store: "Store", key: str, value: str) -> None:
        try:
            store.set_tags(self.driver, {CLAIM + key: value})
        except Exception:
            self.check(store)
            raise

    def _rivals(self, store: "Store", key: str) -> dict[str, dict[str, str]]:
        drivers = store.tagged(kind=KIND)
        return {d: t for d, t in drivers.items() if d != self.driver and CLAIM + key in t}

    def check(self, store: "Store") -> dict[str, str]:
        """Return the driver's tags; raise ElsewhereError if it was taken for dead."""
        tags = store.active_tags(self.driver)
        if tags is None:
            raise ElsewhereError("this one did not answer for too long and lost its claims")
        return tags


class Driver:
    """This command in the store: it beats, and buries drivers that no longer do."""

    def __init__(
        self,
        store: "Store",
        *,
        is_only: bool = False,
        lease_seconds: float = LEASE_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take note of the store; ``is_only`` says that no other driver can be alive."""
        self._store, self._is_only, self._clock = store, is_only, clock
        self._lease, self._pause = lease_seconds, beat_seconds
        self._beats = 0
        self._looked_at = clock()
        self._quiet: dict[str, tuple[str, float]] = {}
        self._stop = threading.Event()

    def __enter__(self) -> "Driver":
        self._register()
        self.look()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give up all claims."""
        self._stop.set()
        self._thread.join(timeout=60)
        try:
            self._store.delete(self.claimant.driver)
        except Exception as error:  # the store is away, so the lease ends by itself
            logger.warning("could not give up the claims: %s", error)

    def _register(self) -> None:
        who = f"{socket.gethostname()} process {os.getpid()}"
        tags = {"kind": KIND, BEAT: "0", WHO: who, PROCESS: _process(os.getpid())}
        self.claimant = Claimant(self._store.create(f"driver on {who}", tags))

    def _live(self) -> None:
        while not self._stop.wait(self._pause):
            try:
                self.beat()
                self.look()
            except Exception as error:  # the store is away; leases are counted while it answers
                logger.warning("the store did not answer: %s", error)

    def beat(self) -> None:
        """Say that this driver is alive; after it was taken for dead, begin anew."""
        if self._store.active_tags(self.claimant.driver) is None:
            self._register()
        self._beats += 1
        self._store.set_tags(self.claimant.driver, {BEAT: str(self._beats)})

    def look(self) -> None:
        """Bury the drivers that are gone."""
        drivers = self._others()
        now = self._clock()
        # A look that comes late, because the store was away, tells nothing of the time between.
        passed, self._looked_at = min(now - self._looked_at, 2 * self._pause), now
        before, self._quiet = self._quiet, {}
        for driver, tags in drivers.items():
            beat, quiet = before.get(driver, ("", 0.0))
            quiet = quiet + passed if beat == tags[BEAT] else 0.0
            self._quiet[driver] = (tags[BEAT], quiet)
            if self._is_only or quiet >= self._lease or _has_ended(tags[PROCESS]):
                logger.warning("%s is gone; its cells are free", tags[WHO])
                self._store.delete(driver)

    def _others(self) -> dict[str, dict[str, str]]:
        found = self._store.tagged(kind=KIND)
        found.pop(self.claimant.driver, None)
        return found

    def elsewhere(self) -> dict[str, str]:
        """Return who works on each cell that another driver works on, by cell id."""
        return claims_of(self._others())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold off all others that would create or file runs."""
        deadline = time.monotonic() + ALONE_SECONDS
        while True:
            try:
                claimant = self.claimant
                claimant.claim(self._store, RUNS)
                break
            except ElsewhereError as error:
                if time.monotonic() > deadline:
                    raise TransientError(f"{error} has been filing runs for too long") from error
            time.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            claimant.give_up(self._store, RUNS)


def claims_of(drivers: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return who claims each key, from the tags of drivers by run id."""
    return {
        key.removeprefix(CLAIM): tags[WHO]
        for tags in drivers.values()
        for key in tags
        if key.startswith(CLAIM)
    }


def _process(pid: int) -> str:
    """Return what tells a process from all others there ever were, as far as we can see it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        space = Path("/proc/self/ns/pid").stat().st_ino
        started = Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[19]
    except OSError:
        return f"{socket.gethostname()} {pid}"
    return f"{boot} {space} {pid} {started}"


def _has_ended(process: str) -> bool:
    """Return whether a process is known to have ended: it ran here and is not here any more."""
    *place, pid, _ = process.split()
    if len(place) != 2:
        return False
    ours = _process(os.getpid()).split()[:2]
    return place == ours and _process(int(pid)) != process
