"""Claims in a real tracking server: one holder at a time, and none for ever."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from oclgrid.platform import claims
from oclgrid.platform.claims import Driver
from oclgrid.platform.store import Store
from oclgrid.trainables.cell import ElsewhereError

pytestmark = pytest.mark.slow

NEVER = 1e9


class Clock:
    """A clock that stands still between the ticks it is told of."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(server_uri: str) -> Iterator[Store]:
    made = Store(server_uri)
    yield made
    assert made.tagged(kind=claims.KIND) == {}


def still(store: Store, clock: Clock | None = None) -> Driver:
    """Return a driver that beats and looks only when it is told to."""
    return Driver(store, beat_seconds=NEVER, lease_seconds=60, clock=clock or Clock())


def test_who_is_refused_learns_who_works_on_it(store: Store) -> None:
    with still(store) as one, still(store) as two:
        one.claimant.claim(store, "cell")
        with pytest.raises(ElsewhereError, match="process"):
            two.claimant.claim(store, "cell")
        assert list(two.elsewhere()) == ["cell"]
        assert one.elsewhere() == {}


def test_a_claim_ends_with_its_driver(store: Store) -> None:
    with still(store) as one:
        with still(store) as two:
            two.claimant.claim(store, "cell")
        one.claimant.claim(store, "cell")
        with pytest.raises(ElsewhereError):
            two.claimant.check(store)


def test_a_driver_that_beats_keeps_its_claims_and_one_that_does_not_loses_them(
    store: Store,
) -> None:
    clock = Clock()
    with Driver(store, beat_seconds=10, lease_seconds=60, clock=clock) as watcher:
        watcher._stop.set()  # it looks when we say so
        with still(store) as slow, still(store) as quick:
            slow.claimant.claim(store, "slow")
            quick.claimant.claim(store, "quick")
            for _ in range(7):
                clock.now += 10
                quick.beat()
                watcher.look()
            assert list(watcher.elsewhere()) == ["quick"]
            with pytest.raises(ElsewhereError, match="lost its claims"):
                slow.claimant.check(store)
            watcher.claimant.claim(store, "slow")
            first = slow.claimant
            slow.beat()
            assert slow.claimant != first
            with pytest.raises(ElsewhereError, match="process"):
                slow.claimant.claim(store, "slow")


def test_time_in_which_the_store_was_away_is_not_held_against_anyone(store: Store) -> None:
    clock = Clock()
    with Driver(store, beat_seconds=10, lease_seconds=60, clock=clock) as watcher:
        watcher._stop.set()
        with still(store) as other:
            watcher.look()
            clock.now += 3600
            watcher.look()
            other.claimant.check(store)


def test_a_driver_whose_process_ended_here_is_not_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = claims._process(ended.pid)
    dead = still(store)
    dead._register()
    store.set_tags(dead.claimant.driver, {claims.PROCESS: process})
    with still(store) as watcher:
        dead.claimant.check(store)
        ended.communicate()
        watcher.look()
        with pytest.raises(ElsewhereError):
            dead.claimant.check(store)
    monkeypatch.setattr(claims, "_process", lambda pid: f"another-machine 1 {pid} 2")
    assert not claims._has_ended(process)


def test_who_is_alone_by_a_lock_waits_for_nobody(store: Store) -> None:
    dead = still(store)
    dead._register()
    with Driver(store, is_only=True, beat_seconds=NEVER) as only:
        assert only._others() == {}
