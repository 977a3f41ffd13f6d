"""Through the whole search loop, an informed sampler finds a planted optimum sooner than chance."""

import math
import statistics
from collections.abc import Iterator
from typing import Any

import pytest
from ray import tune

from oclgrid.platform.launch import Cluster
from oclgrid.platform.search import search_points
from oclgrid.platform.study import Study, open_storage
from oclgrid.search_spaces.search import parse_search
from oclgrid.search_spaces.space import Point

pytestmark = pytest.mark.slow

TRIALS, SEEDS = 15, 10


class Hill(tune.Trainable):
    """Stands in for a cell: its accuracy is known, with the optimum at lambda 4, tau_w 0.15."""

    def setup(self, config: dict[str, Any], board: Any = None) -> None:
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._point = new_config["point"]
        return True

    def step(self) -> dict[str, Any]:
        x, y = math.log10(self._point["lambda"] / 4.0), math.log10(self._point["tau_w"] / 0.15)
        whole = {"step": 1, "stage_seconds": 0.0, "point_done": True, "done": True}
        return {"mean_A": 1 - x * x - y * y, **whole}


class Nobody:
    """Watches nothing."""

    def begin(self, number: int, point: Point) -> dict[str, Any]:
        return {}

    def result(self, result: dict[str, Any]) -> None:
        pass

    def retry(self, number: int, why: str) -> None:
        pass

    def end(self, number: int, state: str) -> None:
        pass


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(None, cpus=2) as cluster:
        yield cluster


def best(cluster: Cluster, sampler: str, seed: int) -> float:
    plain = {
        "search": "planted",
        "space": "sdaf-lambda-tau",
        "cell": {"dataset": "digits", "memory": 20, "method": "sdaf"},
        "budget": {"trials": TRIALS},
        "sampler": sampler,
        "sampler_seed": seed,
    }
    study = Study(parse_search(plain, where="planted"), open_storage("sqlite:///:memory:"))
    study.prepare()
    asked = {"CPU": 2.0}  # one after the other, so that the outcome is always the same
    failed = search_points(cluster, study, Nobody(), trainable=Hill, given={}, asked=asked)
    assert failed == {}
    assert [row.state for row in study.rows()] == ["finished"] * TRIALS
    return study.best()[0].values[0]


def test_tpe_beats_random_in_the_median_over_ten_seeds(cluster: Cluster) -> None:
    medians = {
        sampler: statistics.median(best(cluster, sampler, seed) for seed in range(SEEDS))
        for sampler in ("tpe", "random")
    }
    assert medians["tpe"] > medians["random"], medians
