"""Work that goes on without its terminal, and such jobs in the background of this machine."""

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from oclgrid.platform.location import check_writable
from oclgrid.trainables.schema import SpecError

STOP_SECONDS = 600
"""How long a job that was asked to stop may take to finish the stages under way."""
POLL_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A command to be run elsewhere."""

    name: str
    """Of the sweep or search."""
    verb: str
    """The command: "run" or "tune"."""
    what: str | Path
    """A name, or a file of the user's own."""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job, as it stands."""

    name: str
    state: str
    """One of "running", "finished", "failed" and "stopped"."""
    told: str = ""
    """Why, where there is more to say."""


class Jobs(Protocol):
    """Where jobs run."""

    def submit(self, work: Work) -> bool:
        """Start a job; return False if one of that name is running already, which is left alone."""

    def all(self) -> list[Job]:
        """Return the newest job of every name."""

    def lines(self, name: str, *, follow: bool) -> Iterator[str]:
        """Yield what a job has said, and, to follow it, what it says until it ends."""

    def stop(self, name: str) -> None:
        """Ask a job to finish the stages under way and end."""


def find(jobs: Jobs, name: str) -> Job:
    """Return the job of that name."""
    every = {job.name: job for job in jobs.all()}
    if name not in every:
        known = f"; known: {', '.join(every)}" if every else "; none was submitted"
        raise SpecError(f"there is no job {name!r}{known}")
    return every[name]


class BackgroundJobs:
    """Jobs as processes of this machine that outlive the terminal, one log each in a folder.

    A job holds a lock. Whoever can take it knows that the job has ended, however it did.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def submit(self, work: Work) -> bool:
        """Start a process of its own session; its log begins anew."""
        check_writable(self._folder)
        code = self._path(work.name, "code")
        with self._path(work.name, "lock").open("a") as lock:
            if not _take(lock):
                return False
            code.unlink(missing_ok=True)
            command = [sys.executable, "-m", "oclgrid.platform.jobs", str(code)]
            command += [work.verb, str(work.what), *work.options]
            with self._path(work.name, "log").open("wb") as log, open(os.devnull, "rb") as nothing:
                streams = ((nothing, 0), (log, 1), (log, 2), (lock, lock.fileno()))
                pid = os.posix_spawn(
                    sys.executable,
                    command,
                    os.environ,
                    file_actions=[(os.POSIX_SPAWN_DUP2, f.fileno(), n) for f, n in streams],
                    setsid=True,
                )
            self._path(work.name, "pid").write_text(str(pid), encoding="utf-8")
        return True

    def all(self) -> list[Job]:
        """Return every job, by name."""
        return [self._job(path.stem) for path in sorted(self._folder.glob("*.log"))]

    def _job(self, name: str) -> Job:
        if self._is_running(name):
            return Job(name=name, state="running")
        try:
            code = int(self._path(name, "code").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return Job(name=name, state="stopped", told="its process is gone; submit it again")
        states = {0: "finished", 130: "stopped"}
        return Job(name=name, state=states.get(code, "failed"), told=f"exit code {code}")

    def lines(self, name: str, *, follow: bool) -> Iterator[str]:
        """Yield the log, line by line."""
        with self._path(name, "log").open(encoding="utf-8", errors="replace") as log:
            while True:
                is_over = not follow or not self._is_running(name)  # asked before the last read
                for line in log:
                    yield line.rstrip("\n")
                if is_over:
                    return
                time.sleep(POLL_SECONDS)

    def stop(self, name: str) -> None:
        """Send what schedulers send, which is as good as Ctrl-C."""
        if self._is_running(name):
            os.kill(int(self._path(name, "pid").read_text(encoding="utf-8")), signal.SIGTERM)

    def _is_running(self, name: str) -> bool:
        with self._path(name, "lock").open("a") as lock:
            return not _take(lock)

    def _path(self, name: str, kind: str) -> Path:
        return self._folder / f"{name}.{kind}"


def _take(lock: IO[str]) -> bool:
    """Return whether the lock could be taken; closing the file gives it back."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _run(code: Path, arguments: list[str]) -> None:
    """Run a command and leave its exit code in a file."""
    from oclgrid.platform.cli import main

    try:
        result = main(arguments)
    except SystemExit as end:  # options that cannot be read
        result = int(end.code or 0)
    aside = code.with_suffix(".tmp")
    aside.write_text(str(result), encoding="utf-8")
    os.replace(aside, code)


if __name__ == "__main__":
    _run(Path(sys.argv[1]), sys.argv[2:])
