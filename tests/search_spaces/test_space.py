"""Spaces hold the paper's point and refuse, in one line, what cannot be searched."""

import math
from typing import Any

import pytest

from oclgrid.search_spaces.catalogue import all_spaces, find_space
from oclgrid.search_spaces.space import Choice, Float, Int, Range, Space
from oclgrid.trainables.configs.er import ErConfig
from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.registry import all_methods
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import LONG, SHORT, scaled

VIEWS = all_spaces()["sdaf-views"]


@pytest.mark.parametrize("name", all_spaces())
def test_the_reference_of_every_space_is_the_papers_config(name: str) -> None:
    space = all_spaces()[name]
    assert space.config(space.reference) == SdafConfig()


@pytest.mark.parametrize("name", all_methods())
def test_every_method_has_a_learning_rate_to_search(name: str) -> None:
    config: Any = all_methods()[name].config()
    space = find_space("learning-rate", config)
    assert space.reference == {"learning_rate": config.learning_rate}
    assert space.config({"learning_rate": 0.05}).learning_rate == 0.05


def test_parameters_go_by_the_papers_symbols() -> None:
    config = all_spaces()["sdaf-lambda-tau"].config({"lambda": 2.0, "tau_w": 0.1})
    assert config == SdafConfig(self_supervised_weight=2.0, temperature=0.1)


def test_a_strength_moves_a_whole_series_and_a_free_parameter_one_property() -> None:
    tied = VIEWS.config({"views": "tied", "long_strength": 0.5, "short_strength": 1.0})
    assert isinstance(tied, SdafConfig)
    assert (tied.long, tied.short) == (scaled(LONG, 0.5), SHORT)
    free = VIEWS.config({"views": "free", "short.colour": 0.3, "short.flip": 0.5})
    assert isinstance(free, SdafConfig)
    assert free.long == LONG
    assert (free.short.brightness, free.short.contrast, free.short.saturation) == (0.3, 0.3, 0.3)
    assert (free.short.flip, free.short.hue) == (0.5, SHORT.hue)


def test_which_parameters_exist_depends_on_the_choice_before_them() -> None:
    tied = [name for name, _ in VIEWS.existing({"views": "tied"})]
    free = [name for name, _ in VIEWS.existing({"views": "free"})]
    assert tied == ["views", "long_strength", "short_strength"]
    properties = ("crop_min", "colour", "hue", "grey", "flip")
    assert free == ["views", *(f"{s}.{p}" for s in ("long", "short") for p in properties)]


def test_a_grid_has_every_combination_of_what_exists_together() -> None:
    space = Space(
        SdafConfig(),
        temperature=Float(0.05, 5.0, log=True),
        views=Choice(("tied", "free"), default="tied"),
        long_strength=Float(0.0, 1.0, scales="long", when=("views", "tied")),
    )
    points = list(space.grid(3))
    assert len(points) == 3 * (3 + 1)
    assert sorted({p["tau_w"] for p in points}) == pytest.approx([0.05, 0.5, 5.0])
    assert {p.get("long_strength") for p in points} == {None, 0.0, 0.5, 1.0}


def test_a_grid_of_whole_numbers_has_whole_numbers() -> None:
    assert Int(1, 100, log=True).grid(3) == [1, 10, 100]
    assert Int(1, 3).grid(10) == [1, 2, 3]


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"temperature": Float(5.0, 0.05)}, "tau_w: low must be below high"),
        ({"temperature": Float(0.5, 0.5)}, "tau_w: low must be below high"),
        ({"temperature": Float(0.0, 5.0, log=True)}, "tau_w: low must be above 0"),
        ({"temperature": Float(0.1, math.inf)}, "tau_w must lie between two finite numbers"),
        ({"temperature": Float(1.0, 5.0)}, "tau_w must hold the default of sdaf, 0.5; widen it"),
        ({"temperature": Float(0.00001, 5.0)}, "sdaf.tau_w must lie in [0.0001, 10000]"),
        ({"temperatur": Float(0.1, 1.0)}, "unknown field in space.temperatur 'temperatur'"),
        ({"lambd": Float(0.1, 1.0)}, "did you mean 'lambda'?"),
        ({"name": Choice(("sdaf", "er"))}, "unknown field in space.name 'name'"),
        ({"long.crop": Float(0.1, 1.0)}, "unknown field in space.long.crop 'crop'"),
        ({"momentum.x": Float(0.1, 1.0)}, "momentum has no fields"),
        ({"long.crop_min": Float(0.0, 1.0)}, "crop_min must lie in (0, 1]"),
        ({"batch_size": Float(1.0, 20.0)}, "batch_size must be a whole number"),
        ({"batch_size": Int(1.5, 20)}, "batch_size must lie between two whole numbers"),  # type: ignore[arg-type]
        ({"rotation_count": Choice((1, 2, 4))}, "rotation_count must be one of 1, 4"),
        ({"rotation_count": Choice((4,))}, "two options or more"),
        ({"reduction": Choice(("sum", "all"))}, "must hold the default of sdaf, 'mean'"),
        ({"s": Float(0.5, 2.5, scales="long")}, "crop_min must lie in (0, 1]"),
        ({"s": Float(0.5, 1.5, scales="tau_w")}, "scales must name a series of views"),
        ({"s": Float(0.5, 1.5, scales="long", default=0.9)}, "the default of s must be that"),
        ({"tau_w": Float(0.1, 1.0, when=("x", 1))}, "unknown parameter in space.tau_w.when 'x'"),
        (
            {"x": Choice((1, 2), default=1), "tau_w": Float(0.1, 1.0, when=("x", 3))},
            "space.tau_w.when: x cannot be 3",
        ),
        (
            {"c": Float(0.0, 0.5, sets=("long.brightness", "short.brightness"))},
            "space.c needs a default",
        ),
        ({}, "at least one parameter"),
    ],
)
def test_a_bad_space_is_refused_in_one_line(ranges: dict[str, Range], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        Space(SdafConfig(), **ranges)
    assert message in str(caught.value)


def test_a_space_of_one_method_is_refused_for_another() -> None:
    with pytest.raises(SpecError, match=r"unknown field in space\.lambda 'lambda'"):
        find_space("sdaf-lambda-tau", ErConfig())


def test_an_unknown_space_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SpecError, match="did you mean 'sdaf-views'"):
        find_space("sdaf-view", SdafConfig())
