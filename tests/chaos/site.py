"""What chaos strikes: a database, a tracking server, Ray on several nodes, a running command."""

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from oclgrid.platform.server import EmbeddedServer
from tests.chaos.hook.sitecustomize import ARMED, LINES
from tests.postgresql import PostgreSql
from tests.processes import marked

KINDS = ("worker", "node", "driver", "server", "connection", "line")
DEADLINE_SECONDS = 900.0
NODES = 2
"""Beside the head; each runs one trial at a time."""
STARTS = 5
MARK = "OCLGRID_CHAOS"


def until(is_true: Callable[[], Any], what: str) -> None:
    """Return once something is so; raise TimeoutError, saying what was wanted, if it takes long."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} took more than {DEADLINE_SECONDS:.0f} s")
        time.sleep(0.1)


class Nodes:
    """A Ray cluster on this machine: a head without slots and nodes with one each."""

    def __init__(self, folder: Path) -> None:
        self.armed = folder / "armed"
        # Whatever is started from now on can be found, and killed at a line.
        os.environ[MARK] = str(uuid.uuid4())
        os.environ[ARMED] = str(self.armed)
        os.environ["PYTHONPATH"] = str(Path(__file__).parent / "hook")
        # Ray reads this as it is imported; no other Ray on this machine is touched.
        os.environ["RAY_TMPDIR"] = str(folder)
        from ray.cluster_utils import Cluster

        self._cluster: Any = Cluster()
        self._add(num_cpus=0, include_dashboard=False)
        for _ in range(NODES):
            self._add(num_cpus=1)

    def _add(self, **options: Any) -> None:
        """Start a node; a busy machine may need more than the 30 s that Ray gives it."""
        for left in reversed(range(STARTS)):
            try:
                self._cluster.add_node(**options)
                return
            except Exception as error:  # Ray has no kind of its own for it
                if not left or "timed out during startup" not in str(error):
                    raise

    @property
    def address(self) -> str:
        """Where commands find the cluster."""
        return str(self._cluster.address)

    def replace(self, rng: random.Random) -> None:
        """Kill the raylet of a node and all that hangs on it; start another node."""
        nodes = sorted(self._cluster.worker_nodes, key=lambda n: str(n.unique_id))
        node = rng.choice(nodes)
        (raylet,) = node.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)
        self._add(num_cpus=1)

    def close(self) -> None:
        """End the cluster."""
        self._cluster.shutdown()


class Site:
    """A fresh store behind a server, the cluster, and the command that runs a sweep on them."""

    def __init__(self, folder: Path, sweep: Path, nodes: Nodes, database: PostgreSql) -> None:
        self._folder, self._sweep, self._nodes, self._database = folder, sweep, nodes, database
        self._name = f"round_{folder.name}"
        self._server = EmbeddedServer(folder, database=database.create(self._name))
        self._server.start()
        self._server.wait()
        self._command: subprocess.Popen[bytes] | None = None
        self._said: list[Path] = []

    @property
    def store(self) -> str:
        """Address of the store."""
        return self._server.uri

    def submit(self) -> None:
        """Start the command."""
        self._said.append(self._folder / f"said-{len(self._said)}.txt")
        command = [sys.executable, "-m", "oclgrid.platform.cli", "run", str(self._sweep)]
        command += ["--address", self._nodes.address, "--store", self.store]
        with self._said[-1].open("wb") as said:
            self._command = subprocess.Popen(
                command,
                cwd=self._folder,
                stdout=subprocess.DEVNULL,
                stderr=said,
            )

    @property
    def submissions(self) -> int:
        """How often the command was started."""
        return len(self._said)

    def said(self) -> str:
        """Return all that the command has said so far, over all submissions."""
        return "".join(path.read_text("utf-8", "replace") for path in self._said)

    def exit_code(self) -> int | None:
        """Return how the command ended, None while it runs."""
        assert self._command is not None
        return self._command.poll()

    def strike(self, kind: str, rng: random.Random) -> str:
        """Kill something; return what, "" if there was nothing to kill."""
        strikes: dict[str, Callable[[random.Random], str]] = {
            "worker": self._kill_worker,
            "node": self._kill_node,
            "driver": self._kill_driver,
            "server": self._kill_server,
            "connection": self._kill_connections,
            "line": self._kill_at_line,
        }
        return strikes[kind](rng)

    def _kill_worker(self, rng: random.Random) -> str:
        workers = sorted(pid for pid, line in ours().items() if "Trainable.train" in line)
        if not workers:
            return ""
        os.kill(rng.choice(workers), signal.SIGKILL)
        return "worker"

    def _kill_node(self, rng: random.Random) -> str:
        self._nodes.replace(rng)
        return "node"

    def _kill_driver(self, rng: random.Random) -> str:
        del rng
        if self._command is None or self._command.poll() is not None:
            return ""
        self._command.kill()
        self._command.wait()
        self.submit()
        return "driver"

    def _kill_server(self, rng: random.Random) -> str:
        """Kill all processes of the server but its guard, which starts it again."""
        del rng
        port = f"--port {self._server.port}"
        pids = [p for p, line in ours().items() if port in line and "platform.server" not in line]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return "server" if pids else ""

    def _kill_connections(self, rng: random.Random) -> str:
        """Cut off the tracking server from its database; it may connect again."""
        del rng
        return "connection" if self._database.cut_off(self._name) else ""

    def _kill_at_line(self, rng: random.Random) -> str:
        """Let the next process die that reaches a line; if it is the command, submit it again."""
        line = rng.choice(LINES)
        self._nodes.armed.write_text(line, "ascii")
        if self._command is None:
            self.submit()
        until(lambda: not self._nodes.armed.exists() or self.exit_code() is not None, line)
        if self._nodes.armed.exists():
            self._nodes.armed.unlink()
            return ""
        return f"line ({line})"

    def close(self) -> None:
        """End the server, and the command if it still runs."""
        if self._command is not None and self._command.poll() is None:
            self._command.kill()
            self._command.wait()
        self._server.stop()


def ours() -> dict[int, str]:
    """Return the command line of every process that comes from here, ourselves left out."""
    return marked(f"{MARK}={os.environ[MARK]}")
