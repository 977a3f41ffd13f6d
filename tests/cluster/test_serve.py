"""The tracking server of a cluster lets nobody in without the password."""

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from oclgrid.platform.secret_files import make_secrets, mlflow_login
from oclgrid.trainables.schema import SpecError

pytestmark = pytest.mark.slow

SEARCH = "/api/2.0/mlflow/experiments/search"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[str]:
    """A server, started as the head of a cluster does."""
    make_secrets()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "oclgrid.platform.cli", "serve", "--port", str(port)]
    command += ["--database", f"sqlite:///{home / 'mlflow.db'}", "--artifacts", str(home / "kept")]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 300
    try:
        while not _answers(address):
            assert process.poll() is None, (home / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def _answers(address: str) -> bool:
    try:
        return requests.get(f"{address}/health", timeout=5).ok
    except requests.ConnectionError:
        return False


def test_secrets_are_made_once_and_for_one_user_only(home: Path) -> None:
    files = make_secrets()
    before = [f.read_text() for f in files]
    assert make_secrets() == files
    assert [f.read_text() for f in files] == before
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert file.is_relative_to(home)


def test_no_password_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SpecError, match="`oclgrid secrets` makes one"):
        mlflow_login()


def test_only_the_password_opens_it(server: str) -> None:
    asked = {"max_results": 1}
    user, password = mlflow_login()
    for login in (None, (user, "wrong"), ("admin", "password1234"), ("admin", password)):
        assert requests.post(server + SEARCH, json=asked, auth=login, timeout=30).status_code == 401
    assert requests.post(server + SEARCH, json=asked, auth=(user, password), timeout=30).ok


def test_the_password_is_in_no_argument_and_no_log(server: str, home: Path) -> None:
    assert server
    _, password = mlflow_login()
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert password not in lines.stdout
    assert password not in (home / "log").read_text()
    assert password not in (home / ".oclgrid" / "auth.ini").read_text()
