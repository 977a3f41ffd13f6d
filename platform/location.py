"""Where the store is: an embedded one in a folder, or a tracking server somewhere."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from oclgrid.platform.server import EmbeddedServer, sqlite_uri
from oclgrid.trainables.schema import SpecError

DEFAULT = "oclgrid-store"


@dataclass(frozen=True, slots=True)
class Location:
    """A store's address: ``folder`` for an embedded one, else ``uri`` of a server."""

    folder: Path | None
    uri: str | None

    @property
    def exists(self) -> bool:
        """Whether there is a store to look at."""
        if self.folder is None:
            return True
        try:
            if self.folder.exists() and not self.folder.is_dir():
                raise NotADirectoryError(20, "not a folder")
            return (self.folder / "mlflow.db").exists()
        except OSError as error:
            raise SpecError(
                f"cannot look into the store {self.folder} ({error.strerror}); "
                f"choose another with --store"
            ) from error

    @property
    def resolved(self) -> str:
        """The address in one spelling."""
        return str(self.folder.resolve()) if self.folder else self.uri or ""

    @property
    def reading_uri(self) -> str:
        """Address for looking only: the embedded database is read without a server."""
        return sqlite_uri(self.folder) if self.folder else self.uri or ""

    @contextmanager
    def serving(self, *, port: int | None = None) -> Iterator[EmbeddedServer | None]:
        """Hold a starting tracking server of our own; None for a store that has one."""
        if self.folder is None:
            yield None
            return
        check_writable(self.folder)
        with EmbeddedServer(self.folder, port=port) as server:
            yield server

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Keep other commands from running cells in the same embedded store."""
        if self.folder is None:
            yield
            return
        check_writable(self.folder)
        with (self.folder / "run.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise SpecError(
                    f"another command is running cells in {self.folder}; wait for it, "
                    f"or give this one its own --store"
                ) from error
            yield


def find_store(given: str | None) -> Location:
    """Return the store asked for by option, environment or default."""
    name = given or os.environ.get("OCLGRID_STORE") or DEFAULT
    if name.startswith(("http://", "https://")):
        return Location(None, name.rstrip("/"))
    if "://" in name:
        raise SpecError(
            f"--store must be a folder or the http(s) address of an MLflow server, got {name!r}"
        )
    return Location(Path(name), None)


def check_writable(folder: Path) -> None:
    """Create the folder if need be; refuse one that cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "permission denied")
    except OSError as error:
        raise SpecError(
            f"cannot write to the store folder {folder} ({error.strerror or error}); "
            f"choose another with --store"
        ) from error
