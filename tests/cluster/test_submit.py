"""Jobs on a Ray cluster: only with its token, and they go on where they stopped."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from oclgrid.platform.secret_files import make_secrets

pytestmark = pytest.mark.slow

SWEEP = """
sweep: small
cells: {dataset: digits, memory: 20, orders: 2, method: er, stream_fraction: 0.05}
"""
# Other heads on this machine, of other people's tests, have others.
IP, PORT = f"127.{os.getpid() // 250 % 250 + 2}.{os.getpid() % 250 + 2}.20", 6395
DASHBOARD = 20000 + os.getpid() % 5000
AGENT = DASHBOARD + 5000
ADDRESS = f"http://127.0.0.1:{DASHBOARD}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder, at the same time a home with the cluster's secrets."""
    made = tmp_path_factory.mktemp("head")
    (made / "small.yaml").write_text(SWEEP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(made))
        make_secrets()
        yield made


def environment(folder: Path) -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "HOME": str(folder),
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@pytest.fixture(scope="module")
def head(folder: Path) -> Iterator[Path]:
    """The head of a cluster, as cluster.yaml starts it."""
    start = ["ray", "start", "--head", f"--node-ip-address={IP}", f"--port={PORT}", "--num-cpus=2"]
    start += ["--dashboard-host=127.0.0.1", f"--dashboard-port={DASHBOARD}", "--block"]
    start += [f"--dashboard-agent-listen-port={AGENT}"]
    start += ["--include-dashboard=true", "--object-store-memory=200000000"]
    short = TemporaryDirectory()  # as sockets lie below it, whose paths must not be long
    with (folder / "ray.log").open("wb") as log:
        process = subprocess.Popen(
            [*start, f"--temp-dir={short.name}"],
            env={
                **environment(folder),
                "OCLGRID_STORE": str(folder / "store"),
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN_PATH": str(folder / ".oclgrid" / "ray_token"),
            },
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + 300
    try:
        while oclgrid("status", folder=folder)[0]:
            assert process.poll() is None, (folder / "ray.log").read_text()
            assert time.monotonic() < deadline
        yield folder
    finally:
        process.terminate()
        process.wait(60)
        short.cleanup()


def oclgrid(*arguments: str, folder: Path, **changed: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "oclgrid.platform.cli", *arguments, "--address", ADDRESS],
        cwd=folder,
        env={**environment(folder), **changed},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout + done.stderr


def test_without_the_token_nothing_is_taken_and_nothing_told(head: Path) -> None:
    wrong = head / "wrong"
    wrong.write_text("0" * 64)
    for command in (("submit", "small.yaml"), ("status",)):
        code, said = oclgrid(*command, folder=head, RAY_AUTH_TOKEN_PATH=str(wrong))
        assert code == 2
        assert "no cluster takes jobs" in said
        assert len(said.splitlines()) == 1


def test_a_sweep_is_stopped_submitted_again_and_ends_with_its_table(head: Path) -> None:
    code, said = oclgrid("submit", "small.yaml", folder=head)
    assert code == 0, said
    assert "submitted small" in said
    deadline = time.monotonic() + 300
    while "stage 1 of 5" not in oclgrid("logs", "small", folder=head)[1]:
        assert time.monotonic() < deadline
    assert "is running already" in oclgrid("submit", "small.yaml", folder=head)[1]
    assert oclgrid("stop", "small", folder=head)[0] == 0
    while "running" in oclgrid("status", "small", folder=head)[1]:
        assert time.monotonic() < deadline
    code, said = oclgrid("submit", "small.yaml", "--follow", folder=head)
    assert code == 0, said
    assert "| digits  | 20     | er     |   2 |" in said
    assert "small: finished" in said


def test_a_job_that_is_not_there_is_named(head: Path) -> None:
    code, said = oclgrid("logs", "nothing", folder=head)
    assert code == 2
    assert "there is no job 'nothing'" in said
