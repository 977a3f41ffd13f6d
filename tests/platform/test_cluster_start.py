"""Ray on a busy machine: started again where it gave up, nothing of it left behind."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import services

from oclgrid.platform.launch import STARTS, Cluster
from oclgrid.trainables.schema import SpecError
from tests.processes import marked

MARK = "OCLGRID_TEST=cluster-start"
TOO_SLOW = "The current node timed out during startup. This could happen because\nof many things"


def failing(times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that fails as Ray does, so many times, and then does what it should."""
    left = [None] * times

    def call(*args: Any, **options: Any) -> Any:
        if left:
            left.pop()
            raise Exception(TOO_SLOW)  # Ray's own class of it
        return then(*args, **options)

    return call


def test_ray_that_never_starts_is_given_up_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    mask = os.umask(0o022)
    monkeypatch.setattr(ray, "init", failing(STARTS, dict))
    with pytest.raises(SpecError, match="did not start here in 3 attempts") as caught:
        Cluster(None, cpus=1, say=told.append)
    assert "\n" not in str(caught.value)
    assert [line.endswith("trying again") for line in told] == [True] * (STARTS - 1)
    assert os.umask(mask) == 0o022


@pytest.mark.slow
def test_a_second_attempt_works_and_nothing_is_left_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setenv(*MARK.split("="))
    monkeypatch.setattr(services, "get_node", failing(1, services.get_node))
    with Cluster(None, cpus=1, say=told.append) as cluster:
        assert len(told) == 1
        assert cluster.slots({"CPU": 1.0}) == 1
        assert len(_children("gcs_server")) == len(_children("raylet")) == 1
        assert not [c for c in marked(MARK).values() if "log_monitor.py" in c]
    assert not _children("gcs_server")


def _children(name: str) -> list[int]:
    """Return the running processes of a name that this process started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told, rest = (entry / "stat").read_text().rsplit(")", 1)
            except OSError:  # it ended while we looked
                continue
            state, parent = rest.split()[:2]
            if told.endswith(f"({name}") and int(parent) == os.getpid() and state != "Z":
                found.append(int(entry.name))
    return found
