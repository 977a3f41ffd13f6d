"""A running `oclgrid run` that can be watched, killed and searched for orphans."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.processes import marked

DEADLINE_SECONDS = 300


class Command:
    """A running `oclgrid run`, or another command, with every process that comes from it."""

    def __init__(self, folder: Path, store: str, command: str = "run") -> None:
        self.mark = f"OCLGRID_TEST_MARK={uuid.uuid4()}"
        key, value = self.mark.split("=")
        self._errors = folder / f"{value}.txt"
        start = [sys.executable, "-m", "oclgrid.platform.cli", command, "faults.yaml"]
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [*start, "--store", store],
                cwd=folder,
                env={**os.environ, key: value, "OCLGRID_OUTBOX": str(folder / "outbox")},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> str:
        return self._errors.read_text()

    def until_said(self, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while text not in self.said():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def wait(self) -> int:
        return self._process.wait(timeout=DEADLINE_SECONDS)

    def alive(self) -> dict[int, str]:
        """Return the command line of every process that inherited our mark and still runs."""
        return marked(self.mark)

    def assert_nothing_left(self) -> None:
        # After SIGKILL of the driver Ray's agents notice within a minute or so.
        deadline = time.monotonic() + 240
        while left := self.alive():
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.2)


@pytest.fixture(scope="session")
def start() -> type[Command]:
    return Command
