"""What a worker has to deliver: kept on its disk first, then sent in order until it is there."""

import fcntl
import hashlib
import io
import json
import logging
import os
import re
import shutil
import threading
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from oclgrid.trainables.cell import TransientError

logger = logging.getLogger(__name__)

LETTER_NAME = re.compile(r"(\d{6})-([0-9a-f]{64})\.zip")
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.5, 15.0
KEPT_SECONDS = 30 * 24 * 3600.0


def outbox_root() -> Path:
    """Return where the outboxes of this machine are: $OCLGRID_OUTBOX or below the cache."""
    return Path(os.environ.get("OCLGRID_OUTBOX") or "~/.cache/oclgrid/outbox").expanduser()


def clear_out(root: Path) -> None:
    """Remove what nobody asked for in a month: its cells went on elsewhere, or were given up."""
    for folder in root.glob("*/"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """Metrics of one step, with the time they are logged under however often they are sent."""

    values: dict[str, float]
    step: int
    at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Letter:
    """What is filed together, in this order; filing it again changes nothing."""

    files: dict[str, bytes] = field(default_factory=dict)
    numbers: tuple[Numbers, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    status: str = ""

    def packed(self) -> bytes:
        """Return the letter as the content of one file."""
        plain = {
            "numbers": [asdict(n) for n in self.numbers],
            "tags": self.tags,
            "status": self.status,
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("letter.json", json.dumps(plain))
            for name, content in self.files.items():
                archive.writestr(f"files/{name}", content)
        return buffer.getvalue()

    @classmethod
    def unpacked(cls, content: bytes) -> "Letter":
        """Return the letter that was packed."""
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            plain = json.loads(archive.read("letter.json"))
            names = [n for n in archive.namelist() if n.startswith("files/")]
            files = {name.removeprefix("files/"): archive.read(name) for name in names}
        numbers = tuple(Numbers(**n) for n in plain["numbers"])
        return cls(files=files, numbers=numbers, tags=plain["tags"], status=plain["status"])


class Outbox:
    """The letters of one run on this machine, and a thread that delivers them.

    Several processes may work on one folder, as when a worker is slow to die: each delivery is
    done by one of them. Where nothing can be written, letters wait in memory.
    """

    def __init__(self, folder: Path, deliver: Callable[[Letter], None]) -> None:
        self._folder, self._deliver = folder, deliver
        self._unwritten: deque[Letter] = deque()
        self._changed = threading.Condition()
        self._is_sending = self._has_put = False
        self._refusal: Exception | None = None
        self._trouble = ""

    def put(self, letter: Letter) -> None:
        """Keep a letter, where it survives this process, and send it in the background."""
        with self._changed:
            self._raise_refusal()
            self._has_put = True
            try:
                if self._unwritten:
                    raise OSError("letters before it wait in memory")
                self._write(letter.packed())
            except OSError as error:
                logger.warning("%s cannot be written, keeping in memory: %s", self._folder, error)
                self._unwritten.append(letter)
        self.send()

    def send(self) -> None:
        """Deliver in the background what is there, also what an earlier process left."""
        with self._changed:
            if not self._is_sending:
                self._is_sending = True
                threading.Thread(target=self._send, daemon=True).start()

    def wait(self, seconds: float) -> str:
        """Return "" as soon as nothing waits any more, or after some seconds what does and why."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_sending, timeout=seconds)
            self._raise_refusal()
            return self._waiting(self._trouble or "being delivered") if self._is_sending else ""

    @property
    def trouble(self) -> str:
        """What waits and why, if the last attempt to deliver it has failed."""
        with self._changed:
            return self._waiting(self._trouble) if self._trouble else ""

    def _waiting(self, why: str) -> str:
        return f"{len(self._written()) + len(self._unwritten)} results wait: {why}"

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _send(self) -> None:
        """Deliver until nothing is left; try again what could not be delivered."""
        pause = FIRST_PAUSE_SECONDS
        while self._is_left():
            try:
                self._deliver_oldest()
                self._trouble, pause = "", FIRST_PAUSE_SECONDS
            except (TransientError, OSError) as error:
                self._trouble = str(error)
                logger.warning("%s: %s", self._folder.name, error)
                time.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE_SECONDS)
            except _DamagedError as error:
                logger.warning("%s; it and what comes after it is dropped", error)
                shutil.rmtree(self._folder, ignore_errors=True)
                if self._has_put:
                    self._refuse(TransientError(str(error)))
            except Exception as error:  # the run is gone, or another command's
                self._refuse(error)

    def _is_left(self) -> bool:
        with self._changed:
            is_left = bool(self._written() or self._unwritten)
            self._is_sending = is_left and self._refusal is None
            if not self._is_sending:
                self._changed.notify_all()
            return self._is_sending

    def _refuse(self, error: Exception) -> None:
        """Deliver nothing more from here; whoever puts or waits next is told why."""
        with self._changed:
            self._refusal = error

    def _deliver_oldest(self) -> None:
        if written := self._written():
            with self._locked():
                if (letter := self._read(written[0])) is not None:
                    self._deliver(letter)
                    written[0].unlink(missing_ok=True)
            self._remove_folder()
        elif self._unwritten:  # else another process was faster
            self._deliver(self._unwritten[0])
            self._unwritten.popleft()

    def _written(self) -> list[Path]:
        """Return the letters on disk, oldest first."""
        try:
            return sorted(p for p in self._folder.iterdir() if LETTER_NAME.fullmatch(p.name))
        except OSError:
            return []

    def _write(self, content: bytes) -> None:
        """Write a letter whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        written = self._written()
        number = int(written[-1].name[:6]) + 1 if written else 1
        path = self._folder / f"{number:06d}-{hashlib.sha256(content).hexdigest()}.zip"
        aside = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            with aside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)

    def _read(self, path: Path) -> Letter | None:
        """Return a letter, or None if another process has delivered it by now."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        match = LETTER_NAME.fullmatch(path.name)
        if match and hashlib.sha256(content).hexdigest() == match[2]:
            return Letter.unpacked(content)
        raise _DamagedError(f"{path} is damaged")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from delivering from the same folder."""
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _remove_folder(self) -> None:
        with self._changed, suppress(OSError):  # a letter came, or another process was faster
            self._folder.rmdir()


class _DamagedError(Exception):
    """A letter is not what was written."""
