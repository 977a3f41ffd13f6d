"""Stop when asked: after the stages under way at the first signal, at once at the second."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """What the person at the keyboard, or the scheduler of a cluster, has asked for."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self.say, self._asked, self._told = say, 0, 0
        self._watch: Callable[[Mapping[str, Any]], str] = lambda _: ""
        self.reason = ""
        """Why a stop was asked for, where no signal did."""

    def watch(self, why: Callable[[Mapping[str, Any]], str]) -> None:
        """Ask for a stop as soon as this returns a reason, of a result or of nothing yet."""
        self._watch = why
        self.note({})

    def note(self, result: Mapping[str, Any]) -> None:
        """Take note of a result, before it is decided whether its trial goes on."""
        if (reason := self._watch(result)) and not self._asked:
            self._asked, self.reason = 1, reason
            self.say(reason)

    @property
    def is_asked(self) -> bool:
        """Whether no further stage may begin."""
        return self._asked > 0

    @property
    def is_urgent(self) -> bool:
        """Whether not even the stages under way may end."""
        return self._asked > 1

    def tell(self, stages: int) -> None:
        """Say once what each signal led to; ``stages`` are under way."""
        told, self._told = self._told, min(2, self._asked)
        if told < self._told == 1 and stages:
            under_way = "1 stage" if stages == 1 else f"{stages} stages"
            self.say(f"finishing {under_way}, Ctrl-C again to stop now")
        elif told < self._told == 2:
            self.say("stopping now; finished stages are kept")

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Let signals ask instead of interrupt until the block ends.

        SIGTERM asks once, however often it comes: who sends it has SIGKILL for more. A third
        Ctrl-C interrupts whatever is being done; the next command then cleans up.
        """
        before = {number: signal.signal(number, self._heed) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        del frame  # nothing is said from here: the signal may have come in the middle of a line
        self._asked = self._asked + 1 if number == signal.SIGINT else max(1, self._asked)
        if self._asked > 2:
            raise KeyboardInterrupt
