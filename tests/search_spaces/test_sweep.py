"""Sweep files: which cells they mean, and what is said of those that mean none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oclgrid.search_spaces.sweep import PRESETS, Sweep, parse_sweep, presets, read_sweep
from oclgrid.trainables.analysis import Cka, Ood, Scree
from oclgrid.trainables.configs.scr import ScrConfig
from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.registry import all_methods
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import LONG, SCR, SHORT

Write = Callable[[str], str]
CELLS = {"dataset": "digits", "memory": 10, "orders": 1, "method": "er"}
TEXT = "sweep: x\ncells: {dataset: digits, memory: 10, method: er}\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a sweep file and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "file.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def sweep(cells: object = None, **others: Any) -> Sweep:
    data = {"sweep": "x", "cells": CELLS if cells is None else cells, **others}
    return parse_sweep(data, where="file.yaml")


def grid(**fields: Any) -> Sweep:
    return sweep({**CELLS, **fields})


def overridden(method: str, **fields: Any) -> Any:
    return sweep({**CELLS, "method": method}, overrides={method: fields}).cells[0].method


def keys(made: Sweep) -> list[tuple[str, int, str, int]]:
    return [(c.dataset, c.memory_size, c.method.name, c.class_order) for c in made.cells]


def refusal(act: Callable[[], object]) -> str:
    """Return the message of the SpecError, which must be one printable line."""
    with pytest.raises(SpecError) as caught:
        act()
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 400
    return message


# What a sweep means


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_named_like_its_file_and_says_what_it_is(name: str) -> None:
    made = read_sweep(name)
    assert made.name == name
    assert made.about.isprintable()
    assert 20 < len(made.about) <= 100
    assert made.cells


def test_the_quickstart_ships() -> None:
    assert "quickstart" in presets()
    assert {p.stem for p in PRESETS.iterdir()} == set(presets())


def test_cells_are_the_product_in_the_order_written() -> None:
    made = grid(dataset=["digits", "cifar10"], memory=[20, 10], method=["scr", "er"], orders=2)
    assert keys(made) == [
        (dataset, memory, method, order)
        for dataset in ("digits", "cifar10")
        for memory in (20, 10)
        for method in ("scr", "er")
        for order in (0, 1)
    ]


def test_a_single_value_needs_no_list() -> None:
    assert keys(grid()) == keys(grid(dataset=["digits"], memory=[10], method=["er"], orders=[0]))


def test_three_class_orders_are_the_default() -> None:
    fields = {k: v for k, v in CELLS.items() if k != "orders"}
    assert [c.class_order for c in sweep(fields).cells] == [0, 1, 2]


def test_a_number_of_orders_counts_from_zero() -> None:
    assert [c.class_order for c in grid(orders=4).cells] == [0, 1, 2, 3]


def test_a_list_of_orders_names_them() -> None:
    assert [c.class_order for c in grid(orders=[7, 2]).cells] == [7, 2]


def test_several_grids_follow_one_another() -> None:
    made = sweep([{**CELLS, "memory": 30}, {**CELLS, "method": "scr"}])
    assert keys(made) == [("digits", 30, "er", 0), ("digits", 10, "scr", 0)]


def test_a_cell_named_twice_is_one_cell() -> None:
    assert len(sweep([CELLS, {**CELLS, "memory": [10, 10], "orders": [0, 0]}]).cells) == 1


def test_seed_protocol_and_fraction_reach_the_cell() -> None:
    (cell,) = grid(seed=3, protocol="validation", stream_fraction=0.25).cells
    assert (cell.seed, cell.protocol, cell.stream_fraction) == (3, "validation", 0.25)


def test_a_whole_number_may_stand_for_a_fraction() -> None:
    assert grid(stream_fraction=1).cells[0].cell_id == grid(stream_fraction=1.0).cells[0].cell_id


def test_a_memory_of_none_is_a_cell() -> None:
    assert grid(memory=0).cells[0].memory_size == 0


def test_fields_go_by_the_papers_names() -> None:
    changed = overridden("sdaf", **{"lambda": 2, "tau_w": 0.25})
    assert changed == SdafConfig(self_supervised_weight=2.0, temperature=0.25)


def test_an_override_of_one_method_leaves_the_others_alone() -> None:
    made = sweep({**CELLS, "method": ["er", "scr"]}, overrides={"er": {"learning_rate": 0.5}})
    assert [c.method.learning_rate for c in made.cells] == [0.5, 0.1]


def test_an_override_with_the_default_is_the_same_cell() -> None:
    plain = sweep({**CELLS, "method": "sdaf"})
    same = sweep({**CELLS, "method": "sdaf"}, overrides={"sdaf": {"tau_w": 0.5}})
    assert plain.cells == same.cells
    assert plain.cells[0].cell_id == same.cells[0].cell_id


def test_a_list_of_overrides_is_another_cell_each() -> None:
    variants = [{}, {"tau_w": 0.6}, {"tau_w": 0.5}]  # the third is the first
    made = sweep({**CELLS, "method": "sdaf", "orders": 2}, overrides={"sdaf": variants})
    other = SdafConfig(temperature=0.6)
    assert [c.method for c in made.cells] == [SdafConfig(), SdafConfig(), other, other]


def test_a_whole_view_series_can_be_given() -> None:
    fields = ("crop_min", "flip", "brightness", "contrast", "saturation", "hue", "jitter", "grey")
    series = {name: getattr(SHORT, name) for name in fields}
    assert overridden("scr", views=series) == ScrConfig(views=SHORT)


def test_a_view_series_keeps_what_the_override_is_silent_about() -> None:
    assert overridden("sdaf", long={"hue": 0.3}) == SdafConfig(long=replace(LONG, hue=0.3))
    assert overridden("scr", views={"grey": 0}) == ScrConfig(views=replace(SCR, grey=0.0))


@pytest.mark.parametrize("number", ["1e-3", "1E-3", "1.0e-3", "0.001"])
def test_numbers_may_be_written_the_way_python_writes_them(write: Write, number: str) -> None:
    made = read_sweep(write(TEXT + f"overrides: {{er: {{learning_rate: {number}}}}}"))
    assert made.cells[0].method.learning_rate == 0.001


def test_resources_change_no_cell() -> None:
    plain, asked = sweep(), sweep(resources={"cpus": 2, "gpu": 0.5})
    assert plain.cells == asked.cells
    assert (asked.resources.cpus, asked.resources.gpu) == (2, 0.5)
    assert (plain.resources.cpus, plain.resources.gpu) == (1, "auto")


def test_a_file_is_read_wherever_it_lies(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(write(TEXT))
    monkeypatch.chdir(path.parent)
    assert read_sweep("file.yaml") == read_sweep("./file.yaml") == read_sweep(str(path))


# What is refused


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"sweeps": "x"}, "unknown key of file.yaml 'sweeps'; did you mean 'sweep'?"),
        ({"cells": {**CELLS, "memry": 1}}, "key of cells 'memry'; did you mean 'memory'?"),
        ({"cells": [CELLS, {"metod": 1}]}, "key of cells[1] 'metod'; did you mean 'method'?"),
        ({"resources": {"cpu": 1}}, "key of resources 'cpu'; did you mean 'cpus'?"),
        ({"overrides": {"err": {}}}, "method in overrides 'err'; did you mean 'er'?"),
        ({"overrides": {"er": {"batchsize": 1}}}, "overrides.er 'batchsize'; did you mean 'batch_"),
        ({"cells": {**CELLS, "method": "sdf"}}, "unknown method 'sdf'; did you mean 'sdaf'?"),
        ({"cells": {**CELLS, "dataset": "cifar"}}, "dataset 'cifar'; did you mean 'cifar10'?"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(data: dict[str, Any], said: str) -> None:
    message = refusal(
        lambda: parse_sweep({"sweep": "x", "cells": CELLS, **data}, where="file.yaml")
    )
    assert said in message


def test_a_misspelt_key_of_a_view_series_is_refused_with_the_nearest() -> None:
    message = refusal(lambda: overridden("sdaf", long={"hues": 0.1}))
    assert "key of overrides.sdaf.long 'hues'; did you mean 'hue'?" in message


def test_a_name_like_no_other_is_refused_with_a_list() -> None:
    assert f"known: {', '.join(all_methods())}" in refusal(lambda: grid(method="qqqqqq"))
    assert f"known: {', '.join(sorted(DATASETS))}" in refusal(lambda: grid(dataset="qqqqqq"))
    assert "quickstart" in refusal(lambda: read_sweep("qqqqqq"))


@pytest.mark.parametrize("method", ["er", "scr", "sdaf"])
def test_a_key_like_no_other_is_refused_in_a_line_of_decent_length(method: str) -> None:
    message = refusal(lambda: overridden(method, qqqqqq=1))
    assert message.startswith(f"unknown key of overrides.{method} 'qqqqqq'; ")


def test_an_unknown_preset_is_refused_with_the_nearest() -> None:
    message = refusal(lambda: read_sweep("quikstart"))
    assert message == "unknown sweep 'quikstart'; did you mean 'quickstart'?"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"memory": "many"}, "cells.memory must be a whole number, got 'many'"),
        ({"memory": [10, 1.5]}, "cells.memory[1] must be a whole number, got 1.5"),
        ({"memory": True}, "cells.memory must be a whole number, got True"),
        ({"memory": None}, "cells.memory must be a whole number, got None"),
        ({"method": 3}, "cells.method must be a text, got 3"),
        ({"method": {"er": 1}}, "cells.method must be a text, got {'er': 1}"),
        ({"dataset": None}, "cells.dataset must be a text, got None"),
        ({"seed": "0"}, "cells.seed must be a whole number, got '0'"),
        ({"seed": [0, 1]}, "cells.seed must be a whole number, got [0, 1]"),
        ({"protocol": "train"}, "cells.protocol must be one of test, validation; got 'train'"),
        ({"stream_fraction": "all"}, "cells.stream_fraction must be a finite number, got 'all'"),
        ({"stream_fraction": float("nan")}, "cells.stream_fraction must be a finite number"),
        ({"stream_fraction": 10**400}, "cells.stream_fraction must not exceed 2^53 in size"),
        ({"memory": []}, "cells.memory must have at least one entry, got an empty list"),
        ({"method": []}, "cells.method must have at least one entry, got an empty list"),
        ({"dataset": []}, "cells.dataset must have at least one entry, got an empty list"),
        ({"orders": []}, "must have at least one entry, got an empty list"),
        ({"orders": 0}, "cells.orders must lie in [1, 10000], got 0"),
        ({"orders": 10_001}, "cells.orders must lie in [1, 10000], got 10001"),
        ({"orders": 1.5}, "cells.orders must be a whole number, got 1.5"),
        ({"orders": [0, "b"]}, "cells.orders[1] must be a whole number, got 'b'"),
        ({"stream_fraction": 0}, "stream_fraction must lie in (0, 1], got 0.0"),
        ({"stream_fraction": 1.5}, "stream_fraction must lie in (0, 1], got 1.5"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"memory": -1}, "must not be negative, got -1"),
        ({"memory": 10_000_001}, "must not exceed 10000000, got 10000001"),
        ({"orders": [-1]}, "must not be negative, got -1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(fields: dict[str, Any], said: str) -> None:
    assert said in refusal(lambda: grid(**fields))


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"memory": -1}, "memory"), ({"orders": [-1]}, "order"), ({"seed": -1}, "seed")],
)
def test_a_refused_value_is_named_as_in_the_file(fields: dict[str, Any], named: str) -> None:
    assert named in refusal(lambda: grid(**fields))


def test_a_wrong_type_is_told_once() -> None:
    assert refusal(lambda: grid(orders="x")).count("got 'x'") == 1


@pytest.mark.parametrize(
    ("method", "fields", "said"),
    [
        ("er", {"learning_rate": 0}, "learning_rate must lie in (0, 100], got 0.0"),
        ("er", {"learning_rate": "fast"}, "learning_rate must be a finite number, got 'fast'"),
        ("er", {"batch_size": 0}, "batch_size must lie in [1, 100000], got 0"),
        ("er", {"momentum": 1}, "momentum must lie in [0, 1), got 1.0"),
        ("er", {"composition": "x"}, "composition must be one of separate, union; got 'x'"),
        ("er", {"normalise_inputs": 1}, "normalise_inputs must be true or false, got 1"),
        ("scr", {"temperature": 0}, "temperature must lie in [0.001, 1000], got 0.0"),
        ("scr", {"classifier": "softmax"}, "classifier must be a nearest-centre one"),
        ("scr", {"views": 3}, "overrides.scr.views must be a mapping of fields to values, got 3"),
        ("sdaf", {"lambda": -1}, "lambda must lie in [0, 1000], got -1.0"),
        ("sdaf", {"tau_w": 0}, "tau_w must lie in [0.0001, 10000], got 0.0"),
        ("sdaf", {"rotation_count": 2}, "rotation_count must be one of 1, 4; got 2"),
        ("sdaf", {"rotation_count": True}, "rotation_count must be one of 1, 4; got True"),
        ("sdaf", {"long": {"hue": 0.9}}, "overrides.sdaf.long: hue must lie in [0, 0.5], got 0.9"),
        ("er", {"name": "scr"}, "overrides.er.name cannot be changed; remove it"),
        ("er", {"name": "a\nb", "batch_size": 0}, "overrides.er.name cannot be changed; remove it"),
    ],
)
def test_an_override_that_does_not_fit_is_refused(
    method: str, fields: dict[str, Any], said: str
) -> None:
    assert said in refusal(lambda: overridden(method, **fields))


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"overrides": []}, "overrides must map methods to fields, got []"),
        ({"overrides": {"er": []}}, "overrides.er must name at least one variant"),
        ({"overrides": {"er": [{}, 3]}}, "overrides.er[1] must be a mapping of fields"),
        ({"overrides": {"er": [[{}]]}}, "overrides.er[0] must be a mapping of fields"),
        ({"overrides": {"er": [{"name": "x"}]}}, "overrides.er[0].name cannot be changed"),
        ({"overrides": {"er": 3}}, "overrides.er must be a mapping of fields to values, got 3"),
        ({"overrides": {"scr": {}}}, "unknown method in overrides 'scr'; "),
        ({"resources": 3}, "resources must be a mapping of fields to values, got 3"),
        ({"resources": {"cpus": 0}}, "resources.cpus must lie in [1, 1024], got 0"),
        ({"resources": {"gpu": 2}}, "resources.gpu must be auto, 0 or lie in [0.01, 1]"),
        ({"resources": {"gpu": "x"}}, "resources.gpu must be one of auto"),
        ({"about": 3}, "about must be a text, got 3"),
    ],
)
def test_other_parts_that_do_not_fit_are_refused(others: dict[str, Any], said: str) -> None:
    assert said in refusal(lambda: sweep(**others))


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 65, "a\nb", "ä", "x/y", "x\n"])
def test_a_name_that_no_file_could_bear_is_refused(name: str) -> None:
    data = {"sweep": name, "cells": CELLS}
    message = refusal(lambda: parse_sweep(data, where="file.yaml"))
    assert message.startswith("sweep must be up to 64 letters, digits and any of . _ -, got ")


@pytest.mark.parametrize("key", ["sweep", "cells"])
def test_a_missing_part_is_named(key: str) -> None:
    data = {k: v for k, v in {"sweep": "x", "cells": CELLS}.items() if k != key}
    assert refusal(lambda: parse_sweep(data, where="f.yaml")) == f"f.yaml: {key} is missing; add it"


@pytest.mark.parametrize("key", ["dataset", "memory", "method"])
def test_a_missing_field_of_a_grid_is_named(key: str) -> None:
    fields = {k: v for k, v in CELLS.items() if k != key}
    assert refusal(lambda: sweep([CELLS, fields])) == f"cells[1].{key} is missing; add it"


@pytest.mark.parametrize("cells", [[], {}, [3], 3, "er"])
def test_cells_that_are_no_grid_are_refused(cells: object) -> None:
    assert refusal(lambda: sweep(cells)).startswith("cells")


def test_more_cells_than_anyone_can_run_are_refused() -> None:
    message = refusal(lambda: grid(memory=list(range(11)), orders=10_000))
    assert message == "cells must not exceed 100000, got 110000; split the sweep"


def test_a_method_that_does_not_exist_is_not_offered_to_overrides() -> None:
    cells = {**CELLS, "method": ["er", "a\nb" * 200]}
    assert "unknown method" in refusal(lambda: sweep(cells, overrides={"q": {}}))


# Analyses


def test_analyses_are_a_list_of_names_or_a_mapping_to_settings() -> None:
    assert sweep().analyses == ()
    assert sweep(analyses=["scree", "cka"]).analyses == (Scree(), Cka())
    named = {"cka": {"images": None}, "ood": {"outliers": ["mnist", "svhn"]}, "scree": None}
    expected = (Cka(images=None), Ood(outliers=("mnist", "svhn")), Scree())
    assert sweep(analyses=named).analyses == expected
    assert sweep(analyses={"ood": {"outliers": "mnist"}}).analyses == (Ood(outliers=("mnist",)),)


def test_analyses_change_no_cell() -> None:
    assert sweep(analyses=["cka", "ood", "tsne", "scree"]).cells == sweep().cells


def test_the_digits_of_the_paper_share_their_cells_with_the_quickstart() -> None:
    paper, quick = (read_sweep(name).cells for name in ("paper-digits", "quickstart"))
    assert {c.cell_id for c in quick} < {c.cell_id for c in paper}


@pytest.mark.parametrize(
    ("analyses", "said"),
    [
        (["cak"], "unknown analysis 'cak'; did you mean 'cka'?"),
        ([3], "unknown analysis"),
        ("cka", "analyses must list names or map them to settings, got 'cka'"),
        ({"cka": {"image": 3}}, "unknown key of analyses.cka 'image'; did you mean 'images'?"),
        ({"cka": {"images": 1}}, "analyses.cka.images must be at least 2, got 1"),
        ({"cka": 3}, "analyses.cka must be a mapping of fields to values, got 3"),
        ({"ood": {"outliers": ["minst"]}}, "unknown outlier set 'minst'; did you mean 'mnist'?"),
        ({"tsne": {"outliers": "svnh"}}, "unknown outlier set 'svnh'; did you mean 'svhn'?"),
        ({"tsne": {"images": 10}}, "analyses.tsne.images must be at least 50, got 10"),
        ({"ood": {"normalise": "yes"}}, "analyses.ood.normalise must be one of method, never"),
        ({"scree": {"count": 0}}, "analyses.scree.count must be at least 1, got 0"),
    ],
)
def test_analyses_that_mean_nothing_are_refused(analyses: object, said: str) -> None:
    assert said in refusal(lambda: sweep(analyses=analyses))
