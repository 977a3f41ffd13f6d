"""Shares of a GPU: asked for, measured and kept to; without a GPU, as Ray only counts them."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ray import tune
from ray.cluster_utils import Cluster as Nodes

from oclgrid.platform.capacity import fitting
from oclgrid.platform.estimate import Estimator
from oclgrid.platform.gpu_share import MOST_TRIALS, UNMEASURED, auto_share
from oclgrid.platform.launch import Cluster
from oclgrid.platform.results import CellRun, StageTime
from oclgrid.search_spaces.sweep import Resources, parse_sweep
from oclgrid.trainables.cell import CONTEXT_BYTES, CellTrainable
from oclgrid.trainables.schema import SpecError


@pytest.mark.parametrize("peak", [0.03, 0.05, 0.1, 0.13, 0.2, 0.3, 0.5, 0.79])
def test_auto_gives_as_many_trials_as_their_memory_allows(peak: float) -> None:
    share = auto_share([peak])
    trials = fitting({"GPU": share}, {"GPU": 1.0})
    assert share >= peak
    assert trials == MOST_TRIALS or (trials + 1) * 1.25 * peak > 1 >= trials * 1.25 * peak


def test_auto_is_a_whole_gpu_for_what_nearly_fills_one_and_a_quarter_for_the_unknown() -> None:
    assert auto_share([0.9]) == 1.0
    assert auto_share([0.0]) == UNMEASURED == auto_share([])


def test_auto_is_enough_for_the_hungriest_kind_of_a_sweep() -> None:
    assert auto_share([0.1, 0.6]) == 1.0
    assert auto_share([0.05, 0.0]) == UNMEASURED


def test_the_memory_of_a_kind_is_the_largest_that_its_cells_have_needed() -> None:
    sweep = parse_sweep(
        {"sweep": "s", "cells": {"dataset": "digits", "memory": 20, "orders": 2, "method": "er"}},
        where="s",
    )
    one, two = sweep.cells
    numbers = {"train_seconds": 1.0, "inference_seconds": 1.0}
    run = CellRun(
        run_id="r",
        status="FINISHED",
        stage=5,
        numbers=numbers,
        error="",
        ended_at_ms=0,
        tags={"gpu_peak": "0.1200"},
    )
    found = {one.cell_id: run, two.cell_id: CellRun(**{**_fields(run), "tags": {}})}
    estimator = Estimator(sweep.cells, found, {("digits", "scr"): [StageTime(1, 1, 0.3)]})
    assert estimator.gpu_peak(("digits", "er")) == 0.12
    assert estimator.gpu_peak(("digits", "scr")) == 0.3
    assert estimator.gpu_peak(("digits", "sdaf")) == 0.0


def _fields(run: CellRun) -> dict[str, Any]:
    return {name: getattr(run, name) for name in CellRun.__slots__}


@pytest.mark.parametrize("share", [-0.25, 0.001, 1.5, 2.0])
def test_shares_that_cannot_be_are_refused_in_one_line(share: float) -> None:
    with pytest.raises(SpecError, match=r"resources\.gpu must be auto, 0 or lie in") as caught:
        Resources(gpu=share)
    assert "\n" not in str(caught.value)


def test_a_share_is_no_part_of_a_cell() -> None:
    cells = {"dataset": "digits", "memory": 20, "orders": 1, "method": "er"}
    plain = parse_sweep({"sweep": "s", "cells": cells}, where="s")
    shared = parse_sweep({"sweep": "s", "cells": cells, "resources": {"gpu": 0.5}}, where="s")
    assert plain.cells == shared.cells


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A node that says it has a GPU and more CPUs than shares of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        args = {"num_cpus": 8, "num_gpus": 1, "object_store_memory": 100_000_000}
        nodes = Nodes(initialize_head=True, head_node_args={**args, "include_dashboard": False})
        try:
            with Cluster(nodes.address, cpus=None) as cluster:
                yield cluster
        finally:
            nodes.shutdown()


class Crowd(tune.Trainable):
    """Ends when as many as wanted were there at once; tells how many it saw."""

    def setup(self, config: dict[str, Any], board: Any = None, folder: str = "") -> None:
        self._folder = Path(folder)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._own = self._folder / f"here-{new_config['number']}"
        return True

    def step(self) -> dict[str, Any]:
        self._own.touch()
        full, deadline, seen = self._folder / "full", time.monotonic() + 120, 0
        while not full.exists() or seen == 0:
            seen = max(seen, len(list(self._folder.glob("here-*"))))
            if seen >= 4:
                full.touch()
            assert time.monotonic() < deadline, "the others never came"
            time.sleep(0.01)
        seen = max(seen, len(list(self._folder.glob("here-*"))))
        self._own.unlink()
        return {"seen": seen, "done": True}


class Observed(tune.Trainable):
    """Takes its share as a cell does, on a GPU of which only the calls are real."""

    def setup(self, config: dict[str, Any], board: Any = None) -> None:
        self._share = {"CPU": 1.0}

    def step(self) -> dict[str, Any]:
        told: list[float] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cuda, "is_available", lambda: True)
            patch.setattr(torch.cuda, "set_per_process_memory_fraction", told.append)
            patch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
            device = CellTrainable._use_share(self)  # type: ignore[arg-type]
        return {"device": device, "fraction": told, "done": True}

    _owned = CellTrainable._owned


class Note(tune.Callback):
    """Keeps results."""

    def __init__(self) -> None:
        self.results: list[dict[str, Any]] = []

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return tune.Callback, ()

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.results.append(result)


@pytest.mark.slow
def test_four_quarters_share_a_gpu_and_a_fifth_waits(cluster: Cluster, tmp_path: Path) -> None:
    asked = cluster.request(Resources(gpu=0.25), one_node=True)
    assert asked == {"CPU": 1.0, "GPU": 0.25}
    assert cluster.slots(asked) == 4
    note = Note()
    numbers = {"number": tune.grid_search(list(range(6)))}
    given = {"folder": str(tmp_path)}
    cluster.fit(Crowd, given, asked=asked, callback=note, name_key="number", space=numbers)
    assert [r["seen"] <= 4 for r in note.results] == [True] * 6
    assert max(r["seen"] for r in note.results) == 4


@pytest.mark.slow
def test_a_trial_is_held_to_its_share_of_the_memory(cluster: Cluster) -> None:
    note = Note()
    asked = cluster.request(Resources(), one_node=True, auto_share=0.2)
    space = {"number": tune.grid_search([0])}
    cluster.fit(Observed, {}, asked=asked, callback=note, name_key="number", space=space)
    (result,) = note.results
    assert (result["device"], result["fraction"]) == ("cuda", [0.2])


@pytest.mark.slow
def test_a_gpu_is_refused_where_no_node_has_one_trials_fit_on(cluster: Cluster) -> None:
    with pytest.raises(SpecError, match="9 CPU but no node has more than 8"):
        cluster.request(Resources(cpus=9, gpu=0.5), one_node=True)


def test_what_a_cell_has_needed_counts_the_context_cuda_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from types import SimpleNamespace

    from oclgrid.trainables import cell

    total = SimpleNamespace(total_memory=20 * CONTEXT_BYTES)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: CONTEXT_BYTES)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: total)
    assert cell._gpu_peak() == 0.1
