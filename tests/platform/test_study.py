"""A study keeps its trials whatever happens to who works on it."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oclgrid.platform.location import Location
from oclgrid.platform.search import Ledger, PointSearch, StageHalving
from oclgrid.platform.search_run import SearchOutcome
from oclgrid.platform.study import Study, open_storage, sampler, study_address
from oclgrid.platform.study_plots import pictures
from oclgrid.platform.trials import TrialRow, trials_csv
from oclgrid.platform.tune_command import standing
from oclgrid.search_spaces.search import Search, parse_search
from oclgrid.search_spaces.space import Point
from oclgrid.trainables.schema import SpecError

PLAIN: dict[str, Any] = {
    "search": "hill",
    "space": "sdaf-lambda-tau",
    "cell": {"dataset": "digits", "memory": 50, "method": "sdaf"},
    "budget": {"trials": 9},
}
STAGES = 5


def make(**changes: object) -> Search:
    return parse_search({**PLAIN, **changes}, where="hill.yaml")


def height(point: Point, step: int) -> dict[str, float]:
    """Numbers with their optimum at lambda 4 and tau_w 0.15, falling from stage to stage."""
    x, y = (math.log10(float(point[n]) / o) for n, o in (("lambda", 4.0), ("tau_w", 0.15)))
    value = 0.9 - 0.1 * (x * x + y * y) - 0.05 * step
    return {"A": value, "E": value - 0.1, "F": 0.2 - value / 10, "beta": 0.5}


class Diary:
    """A watcher that only remembers."""

    def __init__(self) -> None:
        self.ends: dict[int, str] = {}

    def begin(self, number: int, point: Point) -> dict[str, Any]:
        return {}

    def result(self, result: dict[str, Any]) -> None:
        pass

    def retry(self, number: int, why: str) -> None:
        pass

    def end(self, number: int, state: str) -> None:
        self.ends[number] = state


class Driver:
    """Does by hand what Tune does with searcher and scheduler: two trials, stage about."""

    def __init__(self, study: Study) -> None:
        self.study, past = study, study.rows()
        study.prepare()
        self.diary = Diary()
        self.ledger = Ledger(study.search, past, {"CPU": 1.0})
        self.chooser = PointSearch(study, self.ledger, self.diary)
        self.halving = StageHalving(study.search, self.ledger, past)
        self.live: dict[str, list[Any]] = {}
        self.suggested = 0

    def run(self, *, steps: int | None = None, fails: tuple[int, ...] = (), error: str = "") -> int:
        """Run to the end, or leave everything as it is after so many steps, as a kill would."""
        taken = 0
        while self._fill() or self.live:
            for trial_id in list(self.live):
                if taken == steps:
                    return taken
                taken += 1
                trial, stage = self.live[trial_id]
                self.live[trial_id][1] = stage + 1
                reason = error if trial.config["trial"] in fails else ""
                self._result(trial, stage + 1, reason)
        return taken

    def _fill(self) -> bool:
        while len(self.live) < 2:
            name = f"tune {self.suggested}"
            config = self.chooser.suggest(name)
            if not isinstance(config, dict):
                return False
            self.suggested += 1
            trial: Any = SimpleNamespace(trial_id=name, config=config)
            self.halving.on_trial_add(None, trial)  # type: ignore[arg-type]
            self.live[name] = [trial, 0]
        return True

    def _result(self, trial: Any, step: int, reason: str) -> None:
        if reason:
            result: dict[str, Any] = {"error": reason, "done": True}
        else:
            means = {f"mean_{k}": v for k, v in height(trial.config["point"], step).items()}
            is_whole = step == STAGES
            result = {**means, "step": step, "stage_seconds": 10.0, "point_done": is_whole}
            result["done"] = is_whole
        if result["done"] or self.halving.on_trial_result(None, trial, result) == "STOP":
            del self.live[trial.trial_id]
            self.halving.on_trial_complete(None, trial, result)
            self.chooser.on_trial_complete(trial.trial_id, result)
        else:
            self.chooser.on_trial_result(trial.trial_id, result)


@pytest.fixture(params=["optuna.db", "study.journal"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / request.param
    return f"sqlite:///{path}" if path.suffix == ".db" else str(path)


def reopen(search: Search, address: str) -> Study:
    return Study(search, open_storage(address))


def test_a_search_killed_twice_ends_with_as_many_trials_as_asked(address: str) -> None:
    search = make()
    for steps in (7, 9, None):
        study = reopen(search, address)
        Driver(study).run(steps=steps)
    rows = reopen(search, address).rows()
    assert [r.number for r in rows] == list(range(9))
    assert {r.state for r in rows} == {"finished", "pruned"}
    points = [tuple(r.point.values()) for r in rows]
    assert len(set(points)) == 9  # a sampler with one seed would have drawn its first points again
    for row in rows:
        assert list(row.steps) == list(range(1, row.reached + 1))
        assert row.values == (row.steps[row.reached],)
        assert row.reached == (STAGES if row.state == "finished" else 3)
        assert row.seconds == 10.0 * row.reached


def test_the_papers_point_is_the_first_and_is_never_pruned(tmp_path: Path) -> None:
    study = reopen(make(), str(tmp_path / "study.journal"))
    Driver(study).run()
    first = study.rows()[0]
    assert first.point == {"lambda": 1.5, "tau_w": 0.5}
    assert first.state == "finished"


def test_what_the_scheduler_stops_is_pruned_against_trials_of_earlier_calls_too(
    tmp_path: Path,
) -> None:
    search = make()
    study = reopen(search, str(tmp_path / "study.journal"))
    Driver(study).run(steps=20)
    driver = Driver(study)
    metric = height(study.best()[0].point, 3)["A"]
    poor: Any = SimpleNamespace(trial_id="x", config={"trial": 99, "is_reference": False})
    driver.halving.on_trial_add(None, poor)  # type: ignore[arg-type]
    result = {"step": 3, "mean_A": metric - 0.5, "stage_seconds": 1.0}
    assert driver.halving.on_trial_result(None, poor, result) == "STOP"
    poor.config["is_reference"] = True
    poor.trial_id = "y"
    driver.halving.on_trial_add(None, poor)  # type: ignore[arg-type]
    assert driver.halving.on_trial_result(None, poor, result) == "CONTINUE"


def test_a_trial_taken_up_again_passes_what_it_passed_before(tmp_path: Path) -> None:
    """Others have come further since, so that halving would now end it at an earlier step."""
    study = reopen(make(), str(tmp_path / "study.journal"))
    Driver(study).run(steps=1)
    row = study.rows()[1]
    past = [replace(row, state="waiting", reached=3)]
    halving = StageHalving(study.search, Ledger(study.search, past, {}), past)

    def decide(number: int, metric: float) -> str:
        config = {"trial": number, "is_reference": False}
        trial: Any = SimpleNamespace(trial_id=f"tune {number}", config=config)
        halving.on_trial_add(None, trial)  # type: ignore[arg-type]
        result = {"step": 3, "mean_A": metric, "stage_seconds": 1.0}
        return halving.on_trial_result(None, trial, result)

    assert [decide(0, 0.9), decide(1, 0.1), decide(2, 0.1)] == ["CONTINUE", "CONTINUE", "STOP"]


def test_steps_told_again_do_not_set_a_trial_back(tmp_path: Path) -> None:
    study = reopen(make(), str(tmp_path / "study.journal"))
    Driver(study).run(steps=4)
    Driver(study).run(steps=2)  # killed again before new ground was reached
    assert [(r.reached, len(r.steps)) for r in study.rows()] == [(2, 2), (2, 2)]


def test_a_diverging_point_counts_as_pruned_and_says_why(tmp_path: Path) -> None:
    study = reopen(make(), str(tmp_path / "study.journal"))
    driver = Driver(study)
    driver.run(fails=(2,), error="DivergedError: the loss was nan")
    assert len(study.rows()) == 9
    assert study.rows()[2].state == "pruned"
    assert "loss was nan" in study.rows()[2].error
    assert driver.chooser.failed == {}


def test_a_failed_trial_is_named_not_replaced_and_tried_again_next_time(tmp_path: Path) -> None:
    address, search = str(tmp_path / "study.journal"), make()
    study = reopen(search, address)
    driver = Driver(study)
    driver.run(fails=(0,), error="KeyError: 'x'")
    assert driver.chooser.failed == {0: "KeyError: 'x'"}
    assert [r.state for r in study.rows()].count("failed") == 1
    assert len(study.rows()) == 9
    study = reopen(search, address)
    Driver(study).run()
    rows = study.rows()
    assert len(rows) == 10
    assert rows[9].point == search.space.reference
    assert rows[9].state == "finished"


def test_a_spent_budget_puts_trials_back_and_more_of_it_goes_on(tmp_path: Path) -> None:
    address = str(tmp_path / "study.journal")
    study = reopen(make(budget={"core_hours": 70 / 3600}), address)
    taken = Driver(study).run()
    assert 7 <= taken <= 8  # one stage per slot beyond the budget at most
    assert "running" not in {r.state for r in study.rows()}
    assert "waiting" in {r.state for r in study.rows()}
    before = len(study.rows())
    assert Driver(reopen(make(budget={"core_hours": 70 / 3600}), address)).run() == 0
    study = reopen(make(), address)
    Driver(study).run()
    assert before < len(study.rows()) == 9


def test_a_grid_is_searched_whole_after_the_papers_point(tmp_path: Path) -> None:
    search = make(sampler="grid", grid_points=3, budget={}, pruning=False)
    address = str(tmp_path / "study.journal")
    for steps in (12, None):
        study = reopen(search, address)
        Driver(study).run(steps=steps)
    points = [r.point for r in study.rows()]
    assert points[0] == search.space.reference
    assert points[1:] == list(search.space.grid(3))
    assert {r.state for r in study.rows()} == {"finished"}


def test_two_trials_never_work_on_the_same_point_at_once(tmp_path: Path) -> None:
    search = make(space={"rotation_count": [1, 4]}, budget={"trials": 6}, sampler="random")
    study = reopen(search, str(tmp_path / "study.journal"))
    study.prepare()
    chooser = PointSearch(study, Ledger(search, [], {}), Diary())
    given = [chooser.suggest(f"tune {i}") for i in range(6)]
    points = [g["point"]["rotation_count"] for g in given if isinstance(g, dict)]
    assert len(points) == len(set(points))
    assert given[-1] is None


@pytest.mark.parametrize("name", ["tpe", "gp", "cmaes", "random"])
def test_every_sampler_searches_and_goes_on(name: str, tmp_path: Path) -> None:
    search = make(sampler=name, budget={"trials": 8}, pruning=False)
    address = str(tmp_path / "study.journal")
    for steps in (18, None):
        study = reopen(search, address)
        Driver(study).run(steps=steps)
    assert [r.state for r in study.rows()] == ["finished"] * 8


def test_a_trial_draws_the_same_point_whenever_it_is_asked_for() -> None:
    assert sampler(make(), 3)._rng.rng.rand() == sampler(make(), 3)._rng.rng.rand()  # type: ignore[attr-defined]
    assert sampler(make(), 3)._rng.rng.rand() != sampler(make(), 4)._rng.rng.rand()  # type: ignore[attr-defined]


def test_conditional_parameters_exist_where_their_choice_was_made(tmp_path: Path) -> None:
    search = make(space="sdaf-views", budget={"trials": 8})
    study = reopen(search, str(tmp_path / "study.journal"))
    study.prepare()
    chooser = PointSearch(study, Ledger(search, [], {}), Diary())
    for i in range(8):
        config = chooser.suggest(f"tune {i}")
        assert isinstance(config, dict)
        names = [name for name, _ in search.space.existing(config["point"])]
        assert list(config["point"]) == names
    assert {r.point["views"] for r in study.rows()} == {"tied", "free"}


def test_several_objectives_end_in_those_that_none_betters(tmp_path: Path) -> None:
    search = make(objective=["A", "F"], budget={"trials": 6})
    study = reopen(search, str(tmp_path / "study.journal"))
    Driver(study).run()
    assert {r.state for r in study.rows()} == {"finished"}
    assert len(study.best()) == 1  # here the one with the most A has the least F
    assert "objectives.png" in pictures(study)


def test_pictures_and_trials_tell_the_whole_study(tmp_path: Path) -> None:
    search = make()
    study = reopen(search, str(tmp_path / "study.journal"))
    Driver(study).run()
    made = pictures(study)
    assert set(made) == {
        "history.png",
        "slice.png",
        "importance.png",
        "intermediate_values.png",
        "parallel_coordinates.png",
        "contour_lambda_tau_w.png",
    }
    assert all(content.startswith(b"\x89PNG") for content in made.values())
    assert sum(study.importances().values()) == pytest.approx(1)
    lines = trials_csv(search, study.rows()).splitlines()
    assert lines[0].startswith("trial,state,lambda,tau_w,E,A,F,beta,steps,of,seconds")
    assert lines[1].startswith("0,finished,1.5,0.5,")
    assert len(lines) == 10


def test_the_best_is_shown_beside_the_paper_and_said_to_be_validation(tmp_path: Path) -> None:
    study = reopen(make(), str(tmp_path / "study.journal"))
    Driver(study).run()
    text = standing(study.search, SearchOutcome(rows=study.rows(), best=study.best()))
    assert "on validation data, 1 class order; no test image was used" in text
    best, paper = text.splitlines()[-2:]
    assert best.startswith("|  best |")
    assert paper.startswith("| paper |     0 |    1.5 |    0.5 |")


def test_a_study_of_a_remote_store_needs_a_place() -> None:
    remote = Location(None, "http://example.org")
    with pytest.raises(SpecError, match="needs --study-storage"):
        study_address(remote, None)
    assert study_address(remote, "x.journal") == "x.journal"


def test_a_storage_that_cannot_be_opened_is_refused_in_one_line() -> None:
    with pytest.raises(SpecError, match="check --study-storage"):
        open_storage("nosuchdb://x/y")


def test_rows_are_plain(tmp_path: Path) -> None:
    study = reopen(make(), str(tmp_path / "study.journal"))
    study.prepare()
    row = study.rows()[0]
    assert isinstance(row, TrialRow)
    assert (row.state, row.point) == ("waiting", {"lambda": 1.5, "tau_w": 0.5})
