"""What tests of several rooms share: one tracking server, one trained cell."""

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from oclgrid.platform.environment import prepare

prepare()  # as the command does, before any test imports MLflow or Ray


@pytest.fixture(scope="session")
def store_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def server_uri(store_folder: Path) -> Iterator[str]:
    from oclgrid.platform.server import EmbeddedServer

    with EmbeddedServer(store_folder) as server:
        server.wait()
        yield server.uri


@pytest.fixture(scope="session")
def postgresql() -> "Iterator[PostgreSql]":
    with TemporaryDirectory() as folder, PostgreSql(Path(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_uri(
    postgresql: "PostgreSql", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of a tracking server over PostgreSQL."""
    from oclgrid.platform.server import EmbeddedServer

    folder = tmp_path_factory.mktemp("artifacts")
    with EmbeddedServer(folder, database=postgresql.uri) as server:
        server.wait()
        yield server.uri


class PostgreSql:
    """A database server of Debian's package, on a loopback port, with a password."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._data = folder, folder / "data"
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        assert programs, "no PostgreSQL; on Debian: apt-get update && apt-get install postgresql"
        self.programs = programs[-1]
        # It refuses to run as root, so then it runs as the user its package made.
        self.user = "postgres" if os.geteuid() == 0 else None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.password = secrets.token_hex(16)
        self.uri = f"postgresql://oclgrid:{self.password}@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> "PostgreSql":
        secret = self._folder / "password"
        secret.write_text(self.password)
        if self.user is not None:
            shutil.chown(self._folder, self.user)
            shutil.chown(secret, self.user)
        made = ["--username=oclgrid", f"--pwfile={secret}", "--auth=scram-sha-256", "--no-sync"]
        made += ["--encoding=UTF8", "--no-locale"]
        self.run("initdb", f"--pgdata={self._data}", *made)
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c fsync=off -k {self._folder}"
        where = [f"--pgdata={self._data}", f"--log={self._folder / 'log'}", "--wait"]
        self.run("pg_ctl", "start", *where, "--timeout=300", f"--options={options}")
        return self

    def __exit__(self, *_: object) -> None:
        self.run("pg_ctl", "stop", f"--pgdata={self._data}", "--mode=fast", "--timeout=300")

    def run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs."""
        subprocess.run(
            [str(self.programs / program), *arguments],
            check=True,
            cwd=self._folder,
            user=self.user,
            env={"PATH": os.environ["PATH"], "PGPASSWORD": self.password},
            stdout=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Train as a trial does; the number of threads can change the last bits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
