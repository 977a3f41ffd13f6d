"""Whatever stands in a sweep file: it is a sweep, or one line says why not."""

import copy
import math
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oclgrid.platform.cli import main
from oclgrid.search_spaces.sweep import Grid, Resources, Sweep, read_sweep
from oclgrid.trainables.registry import all_methods
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import ViewSeries

LOOKS_LIKE_YAML = (
    "sweep: [a, 'b', \"c\"]\n- ? {}&*!|>%@`#~\t\\\x00\x1b\x85\u2028\u202e\ud7ff\ue000é"
)
"""Letters and signs of which broken YAML is made."""

configs = [entry.config for entry in all_methods().values()]
keys = sorted(
    {"sweep", "about", "cells", "overrides", "resources", *all_methods()}
    | {
        f.metadata.get("paper", f.name)
        for cls in (Grid, Resources, ViewSeries, *configs)
        for f in fields(cls)
    }
)
words = ["digits", "cifar10", "er", "scr", "sdaf", "test", "validation", "auto", "softmax", "all"]
words += ["mean", "x", "", "-", "0x10", "1e-3", "null", "yes", "<<", "=", "2024-01-01", "a\nb", "é"]
numbers = [0, 1, -1, 2, 4, 10, 0.1, 0.5, 1.0, -0.0, 1e-300, 1e300, math.nan, math.inf, -math.inf]
numbers += [2**53 + 1, 10**30, -(10**30), 10**500, -(10**1000)]

scalars = (
    st.sampled_from([*words, *numbers, None, True, False])
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.binary(max_size=8)
    | st.dates()
)
any_key = st.sampled_from(keys) | st.sampled_from([1, None, True, math.nan, 10**500, "a\nb"])
any_key = any_key | st.text(max_size=10)
trees = st.recursive(
    scalars,
    lambda part: st.lists(part, max_size=4) | st.dictionaries(any_key, part, max_size=5),
    max_leaves=15,
)


def _some_of(cls: type, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    names = [f.metadata.get("paper", f.name) for f in fields(cls)]
    return st.dictionaries(st.sampled_from(names) | any_key, values, max_size=3)


grids = st.fixed_dictionaries(
    {
        "dataset": st.sampled_from(["digits", ["digits", "cifar10"]]) | trees,
        "memory": st.sampled_from([0, 10, [10, 20]]) | trees,
        "method": st.sampled_from(["er", ["er", "sdaf"], ["er", "scr", "sdaf"]]) | trees,
    },
    optional={"orders": st.integers(-1, 3) | trees, "seed": trees, "stream_fraction": trees},
)
overrides = st.fixed_dictionaries(
    {},
    optional={
        name: _some_of(entry.config, scalars | _some_of(ViewSeries, scalars))
        for name, entry in all_methods().items()
    },
)
near_sweeps = st.fixed_dictionaries(
    {"sweep": st.sampled_from(["a", "b.c"]) | trees, "cells": grids | st.lists(grids, max_size=2)},
    optional={
        "overrides": overrides | trees,
        "resources": _some_of(Resources, scalars) | trees,
        "about": trees,
    },
)

VALID = {
    "sweep": "valid",
    "about": "a sweep with a value at every level",
    "cells": [
        {"dataset": ["digits"], "memory": [10, 20], "orders": 2, "method": ["er", "sdaf"]},
        {"dataset": "cifar10", "memory": 5, "orders": [0, 3], "method": "scr", "seed": 1},
    ],
    "overrides": {"sdaf": [{"lambda": 1.0, "tau_w": 0.5}, {}], "er": {"learning_rate": 0.05}},
    "resources": {"cpus": 1, "gpu": "auto"},
}


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in parts:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*path, key))


@st.composite
def mutants(draw: st.DrawFn) -> Any:
    """Return the valid sweep with one value replaced, taken out or put under another name."""
    tree: Any = copy.deepcopy(VALID)
    *path, last = draw(st.sampled_from(list(_places(VALID))))
    part = tree
    for key in path:
        part = part[key]
    change = draw(st.sampled_from(["replace", "remove", "rename"]))
    if change == "replace":
        part[last] = draw(trees)
    elif change == "remove" or isinstance(part, list):
        del part[last]
    else:
        part[draw(any_key)] = part.pop(last)
    return tree


FRAGMENTS = [
    "sweep: ",
    "cells: ",
    "memory: ",
    "overrides: ",
    "- ",
    "? ",
    ": ",
    "\n",
    "  ",
    "[",
    "]",
]
FRAGMENTS += ["{", "}", ", ", "&a ", "*a", "<<: ", "'", '"', "# ", "|\n", ">\n", "---\n", "...\n"]
FRAGMENTS += [f"!!{tag} " for tag in ("int", "float", "bool", "null", "str", "binary", "timestamp")]
FRAGMENTS += [f"!!{tag} " for tag in ("set", "omap", "pairs", "map", "seq", "python/name:os")]
FRAGMENTS += ["%YAML 1.1\n", "%TAG ! !\n", "!x ", "0x" + "f" * 5000, "9" * 5000, "1:2", ".nan", "x"]
raw_text = (
    st.text(max_size=200)
    | st.text(st.sampled_from(LOOKS_LIKE_YAML), max_size=200)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join)
)
raw_bytes = st.binary(max_size=200) | raw_text.map(lambda t: t.encode("utf-8", "surrogatepass"))

many = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


def dump(tree: Any) -> bytes:
    return yaml.safe_dump(tree, allow_unicode=True, encoding="utf-8")  # type: ignore[no-any-return]


def read_or_refuse(file: Path, content: bytes) -> None:
    """Read a file; anything but a sweep or a line of reason fails the test."""
    file.write_bytes(content)
    try:
        made: Sweep | None = read_sweep(str(file))
    except SpecError as error:
        made, message = None, str(error)
    if made is None:
        assert message.isprintable(), ascii(message)
        assert 10 < len(message) < 400, message
    else:
        assert made.cells


def test_the_sweep_that_mutants_come_from_is_valid(file: Path) -> None:
    file.write_bytes(dump(VALID))
    assert len(read_sweep(str(file)).cells) == 14


@many
@given(tree=trees)
def test_any_tree_is_a_sweep_or_refused_in_one_line(file: Path, tree: Any) -> None:
    read_or_refuse(file, dump(tree))


@many
@given(tree=near_sweeps)
def test_anything_like_a_sweep_is_one_or_refused_in_one_line(file: Path, tree: Any) -> None:
    read_or_refuse(file, dump(tree))


@many
@given(tree=mutants())
def test_a_sweep_with_one_change_is_one_or_refused_in_one_line(file: Path, tree: Any) -> None:
    read_or_refuse(file, dump(tree))


@many
@given(content=raw_bytes)
def test_any_bytes_are_a_sweep_or_refused_in_one_line(file: Path, content: bytes) -> None:
    read_or_refuse(file, content)


@many
@given(text=raw_text, place=st.integers(0, 400))
def test_a_sweep_with_text_thrown_in_is_one_or_refused(file: Path, text: str, place: int) -> None:
    valid = dump(VALID)
    content = text.encode("utf-8", "surrogatepass")
    read_or_refuse(file, valid[:place] + content + valid[place:])


@settings(many, max_examples=200)
@given(content=near_sweeps.map(dump) | mutants().map(dump) | raw_bytes)
def test_plan_shows_cells_or_one_line_whatever_the_file(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    store, output, errors = file.parent / "store", StringIO(), StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = main(["plan", str(file), "--store", str(store)])
    assert code in (0, 2)
    assert len(errors.getvalue().splitlines()) == (1 if code else 0)
    assert bool(output.getvalue()) == (code == 0)
    assert sorted(file.parent.iterdir()) == [file]
