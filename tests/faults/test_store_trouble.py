"""A store in trouble, whatever the trouble is: training goes on, and nothing is lost or doubled."""

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from oclgrid.platform import outbox
from oclgrid.platform.cell_log import MlflowCellLog
from oclgrid.platform.server import EmbeddedServer
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables.datasets import data_root
from oclgrid.trainables.loop import Cell
from tests.postgresql import PostgreSql

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 240
HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
"""Headers that concern one connection only, and the length, which is set anew."""
Trouble = Callable[[], AbstractContextManager[None]]


class Gateway:
    """What stands between workers and a store: a proxy that fails when told to."""

    def __init__(self, target: str) -> None:
        self.status, self.seconds = 0, 0.0
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def forward(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                time.sleep(gateway.seconds)
                if gateway.status:
                    self.answer(gateway.status, {}, b"not now")
                    return
                headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
                reply = requests.request(
                    self.command, target + self.path, headers=headers, data=body, timeout=60
                )
                self.answer(reply.status_code, {"Content-Type": "application/json"}, reply.content)

            def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.forward)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def answering(self, status: int) -> Iterator[None]:
        self.status = status
        yield
        self.status = 0

    @contextmanager
    def slow(self) -> Iterator[None]:
        self.seconds = 1.0
        yield
        self.seconds = 0.0


@contextmanager
def full_disk(port: int) -> Iterator[None]:
    """Let no process of the server write to a file, as when its disk is full."""
    pids = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and f"--port\0{port}\0" in _command_line(entry)
    ]
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    assert before
    for pid, (_, hard) in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    yield
    for pid, limits in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def _command_line(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_text()
    except OSError:  # it ended while we looked
        return ""


@contextmanager
def read_only(postgresql: PostgreSql, name: str) -> Iterator[None]:
    """Let the database take no changes, as while it is moved or is a standby."""
    postgresql.set_read_only(name, "on")
    yield
    postgresql.set_read_only(name, "off")


@pytest.fixture(scope="module")
def cell(one_thread: None) -> Cell:
    grid = {"dataset": "digits", "memory": 20, "orders": 1, "method": "er"}
    cells = {**grid, "stream_fraction": 0.05}
    (spec,) = parse_sweep({"sweep": "trouble", "cells": cells}, where="test").cells
    made = Cell(spec, data_root())
    made.run_stage()
    made.run_stage()
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("trouble")) as made:
        made.wait()
        yield made


@pytest.fixture
def gateway(server: EmbeddedServer) -> Iterator[Gateway]:
    made = Gateway(server.uri)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(outbox, "LAST_PAUSE_SECONDS", 1.0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("OCLGRID_OUTBOX", str(tmp_path / "outbox"))


def assert_only_delayed(cell: Cell, uri: str, trouble: Trouble, told: str) -> None:
    """File two stages during trouble; nothing may arrive before it ends, and all after it."""
    store = Store(uri)
    log = MlflowCellLog(uri, store.create_cell(cell.spec, parent="none", tags={}), cell.spec)
    contents = [b"first", b"second"]
    with trouble():
        for count, content in enumerate(contents, start=1):
            log.stage_done(cell.records[:count], content)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while told not in (why := log.trouble() or log.undelivered(0)):
            assert time.monotonic() < deadline, why
            time.sleep(0.1)
    assert log.undelivered(DEADLINE_SECONDS) == log.trouble() == ""
    points = store.client.get_metric_history(log.run_id, "E")
    assert [(p.step, p.timestamp) for p in points] == [
        (r.stage, r.finished_at_ms) for r in cell.records
    ]
    assert list(log.checkpoints()) == contents[::-1]


@pytest.mark.parametrize(
    ("status", "told"),
    [(500, "500"), (502, "502"), (503, "503"), (429, "429"), (401, "401"), (403, "403")],
)
def test_a_store_that_refuses_for_a_while_only_delays(
    cell: Cell, gateway: Gateway, status: int, told: str
) -> None:
    assert_only_delayed(cell, gateway.uri, lambda: gateway.answering(status), told)


def test_a_slow_store_only_delays(cell: Cell, gateway: Gateway) -> None:
    assert_only_delayed(cell, gateway.uri, gateway.slow, "results wait: being delivered")


def test_a_full_disk_of_the_store_only_delays(cell: Cell, server: EmbeddedServer) -> None:
    told = "the store did not take it"
    assert_only_delayed(cell, server.uri, lambda: full_disk(server.port), told)


def test_a_read_only_store_only_delays(cell: Cell, postgresql: PostgreSql, tmp_path: Path) -> None:
    name = "read_only"
    uri = postgresql.create(name)
    with EmbeddedServer(tmp_path / "artifacts", database=uri) as server:
        server.wait()
        told = "the store did not take it"
        assert_only_delayed(cell, server.uri, lambda: read_only(postgresql, name), told)
