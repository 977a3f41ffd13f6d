"""A search file is read whole or refused in one line that names the field."""

from dataclasses import replace
from typing import Any

import pytest

from oclgrid.search_spaces.search import Budget, parse_search, read_search, searches
from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import scaled

PLAIN: dict[str, Any] = {
    "search": "mine",
    "space": {"lambda": {"low": 0.1, "high": 10, "log": True}},
    "cell": {"dataset": "digits", "memory": 50, "method": "sdaf", "orders": 2},
    "budget": {"trials": 4},
}


def parse(**changes: object) -> Any:
    return parse_search({**PLAIN, **changes}, where="mine.yaml")


@pytest.mark.parametrize("name", searches())
def test_every_preset_starts_at_the_paper_and_never_sees_the_test_set(name: str) -> None:
    search = read_search(name)
    assert search.name == name
    assert search.about
    for order, spec in zip(search.orders, search.cells(search.space.reference), strict=True):
        assert spec == replace(search.around, class_order=order)
        assert spec.protocol == "validation"


def test_the_presets_asked_for_are_there() -> None:
    wanted = {"sdaf-lambda-tau", "sdaf-views", "sdaf-all", "learning-rate"}
    assert {*wanted, "sdaf-lambda-tau-digits", "sdaf-lambda-tau-cifar10-tenth"} <= set(searches())


def test_a_point_is_one_cell_for_each_class_order() -> None:
    search = parse()
    cells = search.cells({"lambda": 3.0})
    assert [c.class_order for c in cells] == [0, 1]
    assert {c.method for c in cells} == {SdafConfig(self_supervised_weight=3.0)}
    assert search.steps == 10


def test_any_method_can_be_put_in_the_place_of_a_presets() -> None:
    search = read_search("learning-rate", method="er")
    assert search.around.method.name == "er"
    assert search.study != read_search("learning-rate").study


def test_ranges_can_be_written_in_the_file() -> None:
    space = {
        "batch_size": {"low": 5, "high": 20, "whole": True},
        "rotation_count": [1, 4],
        "views": {"options": ["both", "long"], "default": "both"},
        "s": {"low": 0, "high": 1.5, "scales": "short", "when": {"views": "both"}},
    }
    search = parse(space=space)
    config = search.space.config({"batch_size": 7, "rotation_count": 1, "s": 0.5})
    assert (config.batch_size, config.rotation_count) == (7, 1)
    assert config.short == scaled(SdafConfig().short, 0.5)


def test_overrides_move_the_reference() -> None:
    search = parse(overrides={"tau_w": 0.9, "lambda": 2})
    assert search.space.reference == {"lambda": 2.0}
    assert search.around.method == SdafConfig(temperature=0.9, self_supervised_weight=2.0)


def test_the_study_is_named_after_what_is_searched_not_after_what_it_may_cost() -> None:
    study = parse().study
    cheap = parse(budget={"hours": 1}, pruning=False, resources={"cpus": 2}, about="x")
    assert cheap.study == study
    others = [
        parse(space={"lambda": {"low": 0.1, "high": 9, "log": True}}),
        parse(cell={**PLAIN["cell"], "orders": 3}),
        parse(objective="E"),
        parse(sampler="random"),
        parse(sampler_seed=1),
        parse(overrides={"tau_w": 0.9}),
    ]
    assert len({study, *(o.study for o in others)}) == 7


def test_several_objectives_are_never_pruned() -> None:
    assert parse(objective=["A", "F"]).pruning is None
    assert parse().pruning is not None
    assert parse(pruning=False).pruning is None


def test_a_grid_needs_no_budget() -> None:
    assert parse(sampler="grid", budget={}).budget == Budget()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spaces": 1}, "did you mean"),
        ({"search": "a b"}, "search must be up to 48 letters"),
        ({"space": "sdaf-lambda"}, "did you mean 'sdaf-lambda-tau'"),
        ({"space": 3}, "space must be a name or map parameters"),
        ({"space": {}}, "at least one parameter"),
        ({"space": {"lambda": 3}}, "space.lambda must be a list of options or a mapping"),
        ({"space": {"lambda": {"low": 1}}}, "space.lambda.high is missing"),
        ({"space": {"lambda": {"low": 2, "high": 1}}}, "low must be below high"),
        ({"space": {"lambda": {"low": 0, "high": 2, "log": True}}}, "low must be above 0"),
        ({"space": {"lambda": {"low": 2, "high": 3}}}, "must hold the default of sdaf, 1.5"),
        ({"space": {"lambda": {"low": 1, "high": 3, "step": 1}}}, "unknown key of space.lambda"),
        ({"space": {"lambda": {"low": 1, "high": 3, "when": 3}}}, "when must map one parameter"),
        ({"space": {"lamda": {"low": 1, "high": 3}}}, "did you mean 'lambda'"),
        ({"space": {"lambda": {"low": "a", "high": 3}}}, "space.lambda.low must be a finite"),
        ({"space": {"lambda": {"low": 1, "high": 2000}}}, "sdaf.lambda must lie in [0, 1000]"),
        ({"cell": {**PLAIN["cell"], "protocol": "test"}}, "cell.protocol must be validation"),
        ({"cell": {**PLAIN["cell"], "dataset": "digit"}}, "did you mean 'digits'"),
        ({"cell": {**PLAIN["cell"], "method": "sdf"}}, "unknown method 'sdf'"),
        ({"cell": {**PLAIN["cell"], "orders": 0}}, "cell.orders must lie in [1, 1000]"),
        ({"cell": {**PLAIN["cell"], "orders": [-1]}}, "class_order must not be negative"),
        ({"overrides": {"name": "er"}}, "overrides.name cannot be changed"),
        ({"overrides": {"tau": 1}}, "unknown key of overrides 'tau'"),
        ({"objective": "B"}, "objective"),
        ({"objective": ["A", "A"]}, "must not name a number twice"),
        ({"objective": ["A", "F"], "pruning": {"after": 1}}, "pruning needs a single objective"),
        ({"objective": ["A", "F"], "sampler": "cmaes"}, "cmaes needs a single objective"),
        ({"sampler": "best"}, "sampler must be one of"),
        ({"sampler_seed": -1}, "sampler_seed must lie in"),
        ({"sampler": "grid", "grid_points": 1}, "grid_points must lie in"),
        ({"sampler": "grid", "space": "sdaf-all"}, "a grid must not exceed"),
        ({"budget": {}}, "budget must limit"),
        ({"budget": {"trials": 0}}, "budget.trials must lie in"),
        ({"budget": {"hours": 0}}, "budget.hours must be above 0"),
        ({"pruning": {"factor": 1}}, "pruning.factor must lie in [2, 1000]"),
        ({"pruning": True}, "pruning"),
        ({"resources": {"cpu": 1}}, "did you mean 'cpus'"),
    ],
)
def test_a_bad_search_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(**changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["search", "space", "cell"])
def test_a_missing_part_is_named(key: str) -> None:
    with pytest.raises(SpecError, match=f"{key} is missing; add it"):
        parse_search({k: v for k, v in PLAIN.items() if k != key}, where="mine.yaml")
