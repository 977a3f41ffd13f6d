"""The embedded tracking server: its life is that of the command that started it."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from oclgrid.platform.environment import ENVIRONMENT
from oclgrid.trainables.schema import SpecError

START_SECONDS = 300.0
HOST = "127.0.0.1"
UP = b"up"
RESTART_SECONDS = 1.0


class EmbeddedServer:
    """An MLflow tracking server on loopback over a SQLite file and an artifact folder."""

    workers = 1

    def __init__(
        self, store: Path, *, port: int | None = None, database: str | None = None
    ) -> None:
        """Take note of folder, port (any) and database (a file in the folder)."""
        self._store = store.resolve()
        self._database = database or sqlite_uri(store)
        self.port = port if port is not None else _free_port()
        self.uri = f"http://{HOST}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server without waiting for it."""
        _require_free(self.port)
        artifacts = self._store / "artifacts"
        artifacts.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "mlflow", "server", "--workers", str(self.workers)]
        command += ["--host", HOST, "--port", str(self.port)]
        command += ["--backend-store-uri", self._database]
        command += ["--artifacts-destination", artifacts.as_uri()]
        with (self._store / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "oclgrid.platform.server", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**ENVIRONMENT, **os.environ},
                start_new_session=True,
            )

    def wait(self) -> None:
        """Return once the server answers; raise if it ends or takes too long."""
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        log = self._store / "server.log"
        while not self._answers():
            if self._process.poll() is not None:
                raise SpecError(f"the tracking server ended at once; see {log}")
            if time.monotonic() > deadline:
                raise SpecError(
                    f"the tracking server did not answer within {START_SECONDS:.0f} s; see {log}"
                )
            time.sleep(0.1)
        if self._process.stdin is not None:  # from now on the guard starts it again if it dies
            self._process.stdin.write(UP)
            self._process.stdin.flush()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        """End the server and wait until it is gone."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()  # the guard sees this and ends its whole group
            self._process.wait()
            self._process = None

    def __enter__(self) -> "EmbeddedServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def sqlite_uri(store: Path) -> str:
    """Return the address of the store's database file."""
    return f"sqlite:///{store.resolve() / 'mlflow.db'}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            state = "taken" if error.errno == errno.EADDRINUSE else "not to be had"
            raise SpecError(
                f"port {port} is {state} ({error.strerror}); choose another with --port"
            ) from error


def _guard(command: list[str]) -> int:
    """Run a command until standard input ends, then end it and all its processes.

    The other end of standard input is held by the process that wanted the server, and the
    system closes it however that process dies. A command that was up and dies is run again.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    was_up, is_over = threading.Event(), threading.Event()

    def listen() -> None:
        while os.read(sys.stdin.fileno(), 64):
            was_up.set()
        is_over.set()

    threading.Thread(target=listen, daemon=True).start()
    while True:
        child = _start(command)
        while child.poll() is None and not is_over.wait(0.1):
            pass
        _end(child)
        if is_over.is_set():
            return 0
        if not was_up.is_set():
            return 1
        time.sleep(RESTART_SECONDS)


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    """Run a command in a process group of its own."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        # Ignored signals are inherited; the server must heed them.
        preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (2, 15)] and None,
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process and those it started, first kindly."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


if __name__ == "__main__":
    sys.exit(_guard(sys.argv[1:]))
