"""A real PostgreSQL for tests."""

import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

import psycopg


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

    def create(self, name: str) -> str:
        """Make a database; return its address."""
        self._sql(f"CREATE DATABASE {name}")
        return self.uri.removesuffix("/postgres") + f"/{name}"

    def set_read_only(self, name: str, state: str) -> None:
        """Let a database take changes or not ("off", "on"), also over connections there are."""
        self._sql(f"ALTER DATABASE {name} SET default_transaction_read_only = {state}")
        self.cut_off(name)

    def cut_off(self, name: str) -> int:
        """End all connections to a database; return how many there were."""
        others = f"FROM pg_stat_activity WHERE datname = '{name}'"
        return self._sql(f"SELECT pg_terminate_backend(pid) {others}")

    def _sql(self, text: str) -> int:
        with psycopg.connect(self.uri, autocommit=True) as connection:
            return connection.execute(text.encode()).rowcount

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
