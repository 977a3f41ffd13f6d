"""Jobs of one machine: submitted, followed, stopped and submitted again."""

import os
import signal
import time
from pathlib import Path

import pytest

from oclgrid.platform.cli import main
from oclgrid.platform.jobs import BackgroundJobs, Work, find
from oclgrid.trainables.schema import SpecError

SWEEP = """
sweep: small
cells: {dataset: digits, memory: 20, orders: 2, method: er, stream_fraction: 0.05}
"""


@pytest.fixture
def jobs(tmp_path: Path) -> BackgroundJobs:
    return BackgroundJobs(tmp_path / "store" / "jobs")


def listing(name: str = "short", what: str = "sweeps") -> Work:
    return Work(name=name, verb="list", what=what)


def test_a_job_leaves_what_it_said_and_how_it_ended(jobs: BackgroundJobs) -> None:
    assert jobs.submit(listing())
    assert "quickstart" in "".join(jobs.lines("short", follow=True))
    assert find(jobs, "short").state == "finished"
    assert jobs.submit(listing(what="nonsense"))
    assert "nonsense" in "".join(jobs.lines("short", follow=True))
    assert find(jobs, "short").state == "failed"
    assert find(jobs, "short").told == "exit code 2"


def test_jobs_that_are_not_there_are_named(jobs: BackgroundJobs) -> None:
    with pytest.raises(SpecError, match="no job 'x'; none was submitted"):
        find(jobs, "x")
    jobs.submit(listing())
    list(jobs.lines("short", follow=True))
    with pytest.raises(SpecError, match="no job 'x'; known: short"):
        find(jobs, "x")


@pytest.mark.slow
def test_a_sweep_goes_on_by_itself_and_can_be_stopped_killed_and_submitted_again(
    tmp_path: Path, jobs: BackgroundJobs, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(SWEEP)
    asked = ["submit", str(tmp_path / "small.yaml"), "--store", str(tmp_path / "store")]
    assert main(asked) == 0
    assert main(asked) == 0
    assert "is running already; nothing was started" in capsys.readouterr().err
    for line in jobs.lines("small", follow=True):
        if "stage 1 of 5" in line:
            break
    assert main(["stop", "small", "--store", str(tmp_path / "store")]) == 0
    list(jobs.lines("small", follow=True))
    assert find(jobs, "small").state == "stopped"

    assert main(asked) == 0
    pid = int((tmp_path / "store" / "jobs" / "small.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while find(jobs, "small").state == "running":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert find(jobs, "small").state == "stopped"

    capsys.readouterr()
    assert main([*asked, "--follow"]) == 0
    said = capsys.readouterr()
    assert "| digits  | 20     | er     |   2 |" in said.out
    assert "small: finished" in said.err
    assert main(["status", "--store", str(tmp_path / "store")]) == 0
    assert capsys.readouterr().out.startswith("small: finished")
