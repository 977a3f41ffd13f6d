"""What chaos strikes: a tracking server, a Ray cluster of several nodes, and a running command."""

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

KINDS = ("worker", "node", "driver", "server")
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
        # Ray reads these as it is imported; no other Ray on this machine is touched.
        os.environ[MARK] = str(uuid.uuid4())
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

    def __init__(self, folder: Path, sweep: Path, nodes: Nodes) -> None:
        self._folder, self._sweep, self._nodes = folder, sweep, nodes
        self.store = folder / "store"
        self._server = EmbeddedServer(self.store)
        self._server.start()
        self._server.wait()
        self._command: subprocess.Popen[bytes] | None = None
        self._said: list[Path] = []

    def submit(self) -> None:
        """Start the command."""
        self._said.append(self._folder / f"said-{len(self._said)}.txt")
        command = [sys.executable, "-m", "oclgrid.platform.cli", "run", str(self._sweep)]
        command += ["--address", self._nodes.address, "--store", self._server.uri]
        with self._said[-1].open("wb") as said:
            self._command = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**os.environ, "OCLGRID_OUTBOX": str(self._folder / "outbox")},
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

    def strike(self, kind: str, rng: random.Random) -> bool:
        """Kill something; return whether there was something to kill."""
        return bool({
            "worker": self._kill_worker,
            "node": self._kill_node,
            "driver": self._kill_driver,
            "server": self._kill_server,
        }[kind](rng))  # fmt: skip

    def _kill_worker(self, rng: random.Random) -> bool:
        workers = sorted(pid for pid, line in marked().items() if "Trainable.train" in line)
        if workers:
            os.kill(rng.choice(workers), signal.SIGKILL)
        return bool(workers)

    def _kill_node(self, rng: random.Random) -> bool:
        self._nodes.replace(rng)
        return True

    def _kill_driver(self, rng: random.Random) -> bool:
        del rng
        assert self._command is not None
        is_running = self._command.poll() is None
        self._command.kill()
        self._command.wait()
        return is_running

    def _kill_server(self, rng: random.Random) -> bool:
        """Kill all processes of the server but its guard, which starts it again."""
        del rng
        port = f"--port {self._server.port}"
        pids = [p for p, line in marked().items() if port in line and "platform.server" not in line]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    def close(self) -> None:
        """End the server, and the command if it still runs."""
        if self._command is not None and self._command.poll() is None:
            self._command.kill()
            self._command.wait()
        self._server.stop()


def marked() -> dict[int, str]:
    """Return the command line of every process that comes from here, ourselves left out."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            if mark in environment and state != "Z":
                found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:  # it ended while we looked
            continue
    return found
