import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from oclgrid.platform.server import EmbeddedServer
from oclgrid.trainables.schema import SpecError

pytestmark = pytest.mark.slow

HOLDER = """
import sys, time
from contextlib import suppress
from pathlib import Path
from oclgrid.platform.server import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
server.start()
server.wait()
print(server.port, flush=True)
time.sleep(600)
"""


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until_silent(port: int) -> None:
    deadline = time.monotonic() + 30
    while answers(port):
        assert time.monotonic() < deadline, f"port {port} still answers"
        time.sleep(0.1)


def listening_addresses(port: int) -> set[str]:
    """Return the local addresses, as the kernel writes them, that listen on a port."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, number = local.split(":")
            if int(number, 16) == port and state == "0A":
                found.add(address)
    return found


def test_it_listens_on_loopback_only(server_uri: str) -> None:
    port = int(server_uri.rsplit(":", 1)[1])
    assert listening_addresses(port) == {"0100007F"}


def test_it_is_gone_after_stop(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        server.wait()
        assert answers(server.port)
    assert not answers(server.port)


def test_it_dies_with_the_process_that_wanted_it(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert holder.stdout is not None
    port = int(holder.stdout.readline())
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    until_silent(port)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SpecError, match=f"port {port} is taken.*--port"):
            EmbeddedServer(tmp_path, port=port).start()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_cannot_start_says_where_to_look(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database")
    with (
        EmbeddedServer(tmp_path) as server,
        pytest.raises(SpecError, match=r"ended at once; see .*server\.log"),
    ):
        server.wait()


def test_it_is_back_soon_when_it_is_killed(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        server.wait()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended while we looked
                line = (entry / "cmdline").read_text()
                if f"--port\0{server.port}\0" in line and "platform.server" not in line:
                    os.kill(int(entry.name), signal.SIGKILL)
        until_silent(server.port)
        server.wait()
        assert answers(server.port)
    assert not answers(server.port)
