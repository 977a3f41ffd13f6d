"""Signals ask to stop: once gently, twice at once, a third time in earnest."""

import os
import signal

import pytest

from oclgrid.platform.stopping import Stop


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_the_first_ctrl_c_asks_and_the_second_urges() -> None:
    stop = Stop()
    with stop.heeded():
        assert not stop.is_asked
        send(signal.SIGINT)
        assert stop.is_asked
        assert not stop.is_urgent
        send(signal.SIGINT)
        assert stop.is_urgent
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_sigterm_asks_once_however_often_it_comes() -> None:
    stop = Stop()
    with stop.heeded():
        for _ in range(3):
            send(signal.SIGTERM)
    assert stop.is_asked
    assert not stop.is_urgent


def test_each_step_is_said_once_with_what_is_under_way() -> None:
    said: list[str] = []
    stop = Stop(said.append)
    with stop.heeded():
        stop.tell(2)
        for _ in range(2):
            send(signal.SIGINT)
            stop.tell(2)
            stop.tell(1)
    assert said == [
        "finishing 2 stages, Ctrl-C again to stop now",
        "stopping now; finished stages are kept",
    ]


def test_afterwards_signals_do_what_they_did_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Stop().heeded():
        pass
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
