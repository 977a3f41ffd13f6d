"""Trials that lose their worker or run out of memory, on a real Ray."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from oclgrid.platform.launch import Cluster
from oclgrid.platform.oversight import enlarged, why_failed
from oclgrid.trainables.cell import OutOfMemoryError, TransientError


class Unlucky(tune.Trainable):
    """Ends with what its trial owns; before that it fails once, or for ever, as it is told to."""

    def setup(self, config: dict[str, Any], board: Any = None, folder: str = "") -> None:
        self._folder = Path(folder)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._fault = new_config["fault"]
        return True

    def step(self) -> dict[str, Any]:
        been_here = self._folder / self._fault
        if not been_here.exists() or self._fault == "starving":
            been_here.write_text(been_here.read_text() + "." if been_here.exists() else ".")
            if self._fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            kind = TransientError if self._fault == "away" else OutOfMemoryError
            raise kind("no answer for 300 s")
        return {"cpus": self.trial_resources.required_resources["CPU"], "done": True}


class Note(tune.Callback):
    """Keeps why trials were retried and what they owned at the end."""

    def __init__(self) -> None:
        self.why: dict[str, str] = {}
        self.cpus: dict[str, float] = {}

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return tune.Callback, ()

    def on_trial_recover(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.why[trial.config["fault"]] = why_failed(trial)

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.cpus[trial.config["fault"]] = result["cpus"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(None, cpus=2) as cluster:
        yield cluster


@pytest.mark.slow
def test_only_a_trial_that_ran_out_of_memory_gets_a_bigger_share(
    cluster: Cluster, tmp_path: Path
) -> None:
    note = Note()
    cluster.fit(
        Unlucky,
        {"folder": str(tmp_path)},
        asked={"CPU": 1.0},
        callback=note,
        name_key="fault",
        space={"fault": tune.grid_search(["killed", "hungry", "away", "starving"])},
    )
    assert note.cpus == {"killed": 1.0, "hungry": 2.0, "away": 1.0}
    assert note.why == {
        "killed": "lost its worker",
        "hungry": "ran out of memory and now has 2 CPU",
        "away": "no answer for 300 s",
        "starving": "ran out of memory and now has 2 CPU",
    }
    assert (tmp_path / "starving").read_text() == ".."


def test_a_bigger_share_is_one_that_a_node_can_give() -> None:
    assert enlarged({"CPU": 1.0}, {"CPU": 8.0}) == {"CPU": 2.0}
    assert enlarged({"CPU": 3.0}, {"CPU": 4.0}) == {"CPU": 4.0}
    assert enlarged({"CPU": 4.0}, {"CPU": 4.0}) == {"CPU": 4.0}
    assert enlarged({"CPU": 1.0, "GPU": 0.25}, {"CPU": 8.0, "GPU": 4.0}) == {"CPU": 1.0, "GPU": 0.5}
    assert enlarged({"CPU": 1.0, "GPU": 0.75}, {"CPU": 8.0, "GPU": 4.0})["GPU"] == 1.0
