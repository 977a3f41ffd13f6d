import math
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.schema import SpecError, build, coerce, shown, unknown
from oclgrid.trainables.series import LONG


@dataclass(frozen=True, kw_only=True)
class Lamp:
    watts: int
    colour: Literal["warm", "cold", 3] = "warm"


@dataclass(frozen=True, kw_only=True)
class Room:
    area: float
    name: str = "hall"
    is_open: bool = False
    doors: tuple[int, ...] = (1,)
    tags: list[str] = field(default_factory=list)
    lamp: Lamp = Lamp(watts=40)
    height: int | None = None
    label: int | str = 0
    light: float = field(default=0.5, metadata={"paper": "lambda"})

    def __post_init__(self) -> None:
        if self.area <= 0:
            raise ValueError(f"area must be positive, got {self.area}")


def refused(cls: type, data: object, **options: Any) -> str:
    with pytest.raises(SpecError) as caught:
        build(cls, data, where="room", **options)
    return str(caught.value)


def test_a_mapping_becomes_the_dataclass() -> None:
    room = build(Room, {"area": 2.5, "name": "attic", "is_open": True}, where="room")
    assert room == Room(area=2.5, name="attic", is_open=True)


@pytest.mark.parametrize("data", [None, 3, "area: 1", [("area", 1.0)]])
def test_anything_but_a_mapping_is_refused(data: object) -> None:
    message = refused(Room, data)
    assert message == f"room must be a mapping of fields to values, got {data!r}"


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    assert refused(Room, {"aera": 1.0}) == "unknown key of room 'aera'; did you mean 'area'?"


def test_an_unknown_key_near_nothing_is_refused_with_all_known_ones() -> None:
    assert refused(Lamp, {"zzz": 1}) == "unknown key of room 'zzz'; known: colour, watts"


@pytest.mark.parametrize("key", [3, None, 2.5, True, ("a", 1)])
def test_a_key_that_is_no_text_is_refused(key: object) -> None:
    assert refused(Lamp, {key: 1}).startswith(f"unknown key of room {key!r}; ")


def test_a_missing_field_is_named() -> None:
    assert refused(Room, {}) == "room.area is missing; add it"


def test_a_field_with_a_default_factory_may_be_missing() -> None:
    assert build(Room, {"area": 1.0}, where="room").tags == []


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("area", "1.5", "a finite number"),
        ("area", True, "a finite number"),
        ("area", None, "a finite number"),
        ("area", math.nan, "a finite number"),
        ("area", math.inf, "a finite number"),
        ("area", -math.inf, "a finite number"),
        ("area", [1.0], "a finite number"),
        ("name", 3, "a text"),
        ("name", None, "a text"),
        ("is_open", 1, "true or false"),
        ("is_open", "yes", "true or false"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(key: str, value: object, wanted: str) -> None:
    assert refused(Room, {key: value}) == f"room.{key} must be {wanted}, got {value!r}"


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, [1]])
def test_only_a_whole_number_is_a_whole_number(value: object) -> None:
    assert refused(Lamp, {"watts": value}) == f"room.watts must be a whole number, got {value!r}"


def test_a_whole_number_is_taken_for_a_float_and_becomes_one() -> None:
    area = build(Room, {"area": 2}, where="room").area
    assert isinstance(area, float)
    assert area == 2.0


def test_a_whole_number_too_large_to_be_exact_is_refused_as_a_float() -> None:
    assert coerce(float, 2**53, "x") == 2.0**53
    with pytest.raises(SpecError, match="x must not exceed"):
        coerce(float, 2**53 + 1, "x")


@pytest.mark.parametrize("value", ["warm", "cold", 3])
def test_a_literal_takes_its_values(value: object) -> None:
    assert build(Lamp, {"watts": 1, "colour": value}, where="room").colour == value


@pytest.mark.parametrize("value", ["hot", 4, None, 3.0, ["warm"], {"warm": 1}])
def test_a_literal_refuses_other_values(value: object) -> None:
    message = refused(Lamp, {"colour": value})
    assert message == f"room.colour must be one of warm, cold, 3; got {value!r}"


def test_true_is_not_taken_for_the_number_one() -> None:
    with pytest.raises(SpecError, match="must be one of 1, 4; got True"):
        coerce(Literal[1, 4], True, "rotation_count")


@pytest.mark.parametrize("value", [None, 3])
def test_an_optional_field_takes_none_or_its_type(value: int | None) -> None:
    assert build(Room, {"area": 1.0, "height": value}, where="room").height == value


@pytest.mark.parametrize("value", [3, "three"])
def test_a_union_takes_each_of_its_types(value: int | str) -> None:
    assert build(Room, {"area": 1.0, "label": value}, where="room").label == value


def test_a_union_says_all_it_would_have_taken() -> None:
    message = refused(Room, {"label": 1.5})
    assert message == "room.label must be a whole number, got 1.5 or must be a text, got 1.5"


@pytest.mark.parametrize(("value", "doors"), [(2, (2,)), ([2], (2,)), ([1, 2, 3], (1, 2, 3))])
def test_a_tuple_is_made_from_a_list_or_from_one_value(value: object, doors: object) -> None:
    assert build(Room, {"area": 1.0, "doors": value}, where="room").doors == doors


def test_an_empty_list_makes_no_tuple() -> None:
    message = refused(Room, {"doors": []})
    assert message == "room.doors must have at least one entry, got an empty list"


def test_a_wrong_entry_of_a_list_is_named_by_its_position() -> None:
    message = refused(Room, {"doors": [1, "two"]})
    assert message == "room.doors[1] must be a whole number, got 'two'"


def test_a_nested_mapping_changes_only_what_it_names_of_the_base() -> None:
    base = Room(area=1.0, lamp=Lamp(watts=60, colour="cold"))
    room = build(Room, {"lamp": {"watts": 100}}, where="room", base=base)
    assert room == Room(area=1.0, lamp=Lamp(watts=100, colour="cold"))


def test_a_nested_mapping_without_a_base_must_be_whole() -> None:
    assert refused(Room, {"area": 1, "lamp": {}}) == "room.lamp.watts is missing; add it"


def test_a_wrong_nested_value_is_named_by_its_path() -> None:
    message = refused(Room, {"lamp": {"watts": "many"}})
    assert message == "room.lamp.watts must be a whole number, got 'many'"


def test_a_field_goes_by_the_papers_symbol() -> None:
    assert build(Room, {"area": 1, "lambda": 0.25}, where="room").light == 0.25


def test_a_field_with_a_symbol_does_not_go_by_its_own_name() -> None:
    assert "unknown key of room 'light'" in refused(Room, {"light": 0.25})


def test_sdaf_takes_lambda_and_tau_w() -> None:
    config = build(SdafConfig, {"lambda": 2, "tau_w": 0.25}, where="sdaf", base=SdafConfig())
    assert (config.self_supervised_weight, config.temperature) == (2.0, 0.25)


def test_a_rule_of_the_class_is_told_with_the_place() -> None:
    assert refused(Room, {"area": -1}) == "room: area must be positive, got -1.0"


def test_one_value_of_a_view_series_can_be_changed_alone() -> None:
    config = build(SdafConfig, {"long": {"grey": 0.5}}, where="sdaf", base=SdafConfig())
    assert config.long.grey == 0.5
    assert config.long.crop_min == LONG.crop_min


def test_a_long_value_is_shown_shortly() -> None:
    assert len(shown("x" * 10**6)) == 60
    assert shown("x" * 10**6).endswith("...")


@pytest.mark.parametrize("value", ["a\nb", "\r", "\u2028", "\x00", "\ud800", "é"])
def test_an_odd_text_is_shown_on_one_printable_line(value: str) -> None:
    text = shown(value)
    assert text.isascii()
    assert text.isprintable()


def test_a_number_too_long_to_print_is_still_shown() -> None:
    assert len(shown(16**5000)) <= 60


def test_an_unknown_name_is_told_with_its_kind() -> None:
    assert str(unknown("method", "sdf", ["sdaf", "er"])) == (
        "unknown method 'sdf'; did you mean 'sdaf'?"
    )


SDAF_KEYS = ["name", "updates_per_batch", "learning_rate", "classifier", "rotation_count"]
SDAF_KEYS += ["lambda", "tau_w", "long", "short", "head_norm", "crop_min", "grey", "hue"]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=80)
    | st.sampled_from(["softmax", "ncm-euclid", "er", 1, 4, 0.5])
)
KEYS = st.sampled_from(SDAF_KEYS) | st.text(max_size=80)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def built(tree: object) -> SdafConfig | str:
    """Return the config, or the words with which the tree is refused."""
    try:
        return build(SdafConfig, tree, where="sdaf", base=SdafConfig())
    except SpecError as error:
        return str(error)


@settings(max_examples=300, deadline=None)
@example({"learning_rate": -1.0, "name": "two\nlines"})
@given(st.dictionaries(KEYS, TREES, max_size=5) | TREES)
def test_any_tree_builds_a_config_or_is_refused_in_one_line(tree: object) -> None:
    outcome = built(tree)
    if not isinstance(outcome, SdafConfig):
        assert outcome.isprintable()
        assert len(outcome) < 700
