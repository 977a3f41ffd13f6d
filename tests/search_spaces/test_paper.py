"""The paper's numbers: complete where Table 1 is, absent where nothing is known, as printed."""

import copy
import statistics

import pytest

from oclgrid.search_spaces.paper import (
    BY_CELL,
    BY_METHOD,
    FILE,
    SETTING,
    Printed,
    check,
    paper,
)
from oclgrid.search_spaces.yaml_file import read_yaml
from oclgrid.trainables.registry import all_methods
from oclgrid.trainables.schema import SpecError

ELEVEN = ("ewc", "er", "agem", "gss", "mir", "aser", "dualnet", "dvc", "scr", "scl", "sdaf")
SIZES = {
    "miniimagenet": (1000, 2000, 5000),
    "cifar100": (1000, 2000, 5000),
    "cifar10": (200, 500, 1000),
}


def end_accuracy(dataset: str, memory: int, method: str) -> Printed | None:
    return paper().number("E", dataset=dataset, memory=memory, method=method)


@pytest.mark.parametrize("dataset", SIZES)
@pytest.mark.parametrize("method", ELEVEN)
def test_table_1_is_complete(dataset: str, method: str) -> None:
    for memory in SIZES[dataset]:
        assert end_accuracy(dataset, memory, method) is not None


def test_numbers_are_as_printed() -> None:
    assert end_accuracy("cifar10", 500, "sdaf") == Printed(0.664, 0.010)
    assert end_accuracy("cifar10", 500, "er") == Printed(0.291, 0.041)
    assert end_accuracy("cifar100", 5000, "dvc") == Printed(0.366, None)
    assert end_accuracy("miniimagenet", 1000, "aser") == Printed(0.137, None)
    forgetting = paper().number("F", dataset="cifar10", memory=500, method="sdaf")
    assert forgetting == Printed(0.197, None)


def test_a_method_without_memory_has_one_number_for_all_sizes() -> None:
    found = {end_accuracy("cifar100", memory, "ewc") for memory in (0, 1000, 2000, 5000)}
    assert found == {Printed(0.058, None)}


def test_what_is_not_known_is_absent() -> None:
    assert end_accuracy("digits", 100, "sdaf") is None
    assert end_accuracy("cifar10", 300, "sdaf") is None
    assert end_accuracy("cifar10", 200, "sdaf-align") is None
    assert paper().number("A", dataset="cifar10", memory=500, method="agem") is None
    assert paper().stages("er") is None
    assert paper().analysis("ood", "er") == {}
    assert paper().analysis("tsne", "sdaf") == {}


def test_every_method_named_exists() -> None:
    data = read_yaml(FILE)
    by_cell = {m for k in BY_CELL for d in data[k].values() for m in d}
    by_method = {m for k in BY_METHOD for m in data[k]}
    noted = {n.method for n in paper().notes} - {None}
    assert by_cell | by_method | noted <= set(all_methods())


def test_the_notes_say_what_the_numbers_show() -> None:
    dataset, memory = SETTING
    for method, mean in (("scr", 0.748), ("scl", 0.761), ("sdaf", 0.785)):
        stages = paper().stages(method)
        assert stages is not None
        assert statistics.fmean(stages) == pytest.approx(mean, abs=1e-3)
    table = paper().number("A", dataset=dataset, memory=memory, method="scr")
    assert table == Printed(0.736, None)
    assert end_accuracy(*SETTING, "sdaf-identity") == end_accuracy(*SETTING, "scl")
    (note,) = paper().notes_on(("E",), "ewc")
    assert "may be quoted" in note


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("E", "cifar10", "er"), [24.1, 29.1]),
        (("E", "cifar10", "er"), {300: 24.1}),
        (("E", "cifar10", "er"), [24.1, 29.1, 381.0]),
        (("F", "cifar10", "scr"), {500: 32.8}),
        (("cka", "scr"), {"seen": "high"}),
    ],
)
def test_slips_of_the_pen_are_refused(place: tuple[str, ...], value: object) -> None:
    data = copy.deepcopy(read_yaml(FILE))
    *path, last = place
    part = data
    for key in path:
        part = part[key]
    part[last] = value
    with pytest.raises(SpecError, match=r"paper\.yaml"):
        check(data)
