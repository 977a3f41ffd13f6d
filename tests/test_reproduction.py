"""What docs/reproduction.md and the README say of results is what was exported."""

import re
from statistics import mean, stdev

import pytest

from oclgrid.search_spaces.paper import paper
from oclgrid.search_spaces.sweep import read_sweep
from oclgrid.trainables.configs.scl import SclConfig
from oclgrid.trainables.configs.scr import ScrConfig
from oclgrid.trainables.configs.sdaf import SdafConfig
from tests.exported import READINGS, README, REPRODUCTION, exported, exported_cells, interval

pytestmark = pytest.mark.slow


def test_the_tenth_of_cifar10_shown_is_what_was_exported() -> None:
    table = exported("cifar10-tenth")
    assert table in REPRODUCTION
    rows = [line.split("|")[1:-1] for line in table.splitlines()]
    ours = ["|".join(["", *row[:5], *row[8:], ""]) for row in rows]
    assert "\n".join(ours) in README


def test_the_classifiers_shown_are_what_was_exported() -> None:
    assert exported("classifiers-full") in READINGS
    assert exported("classifiers-cifar100") in REPRODUCTION
    assert exported("ablation-sda") in REPRODUCTION


def test_the_whole_stream_of_cifar100_shown_is_what_was_exported() -> None:
    table = exported("cifar100-full")
    assert table in REPRODUCTION
    assert table in README
    by_id = exported_cells()
    networks = [by_id[cell.cell_id] for cell in read_sweep("cifar100-full").cells]
    for kind in ("test_by_exemplars", "test_by_stream", "exemplars_by_exemplars"):
        numbers = [
            f"{100 * row[f'centres/{kind}_{distance}']:.1f}"
            for row in networks
            for distance in ("euclid", "mahalanobis")
        ]
        assert re.search(r"\| +" + r" \| +".join(numbers) + r" \|", REPRODUCTION)


def test_the_whole_stream_of_cifar10_shown_is_what_was_exported() -> None:
    table = exported("cifar10-full")
    assert table in REPRODUCTION
    assert table in README
    by_id = {cell_id: row["stage_accuracies"] for cell_id, row in exported_cells().items()}
    for order, cell in enumerate(read_sweep("cifar10-full").cells[:3]):
        *first, last = [f"{100 * a:.1f}" for a in by_id[cell.cell_id]]
        told = f"{', '.join(first)} and {last} % in order {order}"
        assert told in " ".join(REPRODUCTION.split())


def test_the_order_of_the_methods_is_told_from_paired_class_orders() -> None:
    by_id = exported_cells()
    ends = {(c.method, c.class_order): c.cell_id for c in read_sweep("cifar10-full").cells}
    ends |= {
        (c.method, c.class_order): c.cell_id for c in read_sweep("classifiers-full").cells[:18]
    }
    unit = SdafConfig(classifier="ncm-euclid", normalise_features=True)
    for one, two, named in (
        (SclConfig(), ScrConfig(), "scl less scr"),
        (SdafConfig(), ScrConfig(), "sdaf less scr"),
        (SdafConfig(), SclConfig(), "sdaf less scl"),
        (unit, ScrConfig(), "sdaf, by Euclid and unit length, less scr"),
        (unit, SclConfig(), "sdaf, by Euclid and unit length, less scl"),
    ):
        lead = [
            100 * (by_id[ends[one, order]]["E"] - by_id[ends[two, order]]["E"])
            for order in range(3)
        ]
        middle, low, high = interval(lead)
        numbers = [*(f"{x:+.1f}" for x in lead), f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"]
        row = r" +\| +".join(map(re.escape, [named, *numbers]))
        assert re.search(rf"\| {row} \|", REPRODUCTION)


def test_sdaf_forgets_most_and_is_least_balanced_in_each_class_order() -> None:
    by_id, told = exported_cells(), " ".join(REPRODUCTION.split())
    names, cells = ("sdaf", "scr", "scl"), read_sweep("cifar10-full").cells
    rows = [[by_id[c.cell_id] for c in cells if c.method.name == name] for name in names]
    for ours, *others in zip(*rows, strict=True):
        assert all(ours["F"] > row["F"] and ours["beta"] < row["beta"] for row in others)
    of_f = ([row["F"] for row in of_method] for of_method in rows)
    sdaf, scr, scl = (f"{mean(f):.3f} ± {stdev(f):.3f}" for f in of_f)
    printed = [paper().number("F", dataset="cifar10", memory=500, method=name) for name in names]
    theirs = ", ".join(f"{number.mean:.3f}" for number in printed if number)
    assert f"(F {sdaf}, SCR {scr}, SCL {scl})" in told
    assert f"forgets the least ({theirs})" in told


def test_the_analyses_shown_are_what_was_exported() -> None:
    by_id, printed = exported_cells(), paper().analysis
    shown = {"cka": ("{:.3f}", 1, "seen unseen"), "ood": ("{:.1f}", 100, "mnist omniglot svhn")}
    for cell in read_sweep("analyses-tenth").cells:
        pairs = []
        for analysis, (form, scale, keys) in shown.items():
            for key in keys.split():
                ours = by_id[cell.cell_id][f"{analysis}/{key}"]
                both = (ours, printed(analysis, cell.method.name)[key])
                pairs.append(" / ".join(form.format(scale * x) for x in both))
        row = r" +\| +".join(map(re.escape, [cell.method.name, *pairs]))
        assert re.search(rf"\| {row} \|", REPRODUCTION)


def test_what_is_said_in_short_is_said_at_length_too() -> None:
    _, short, long = re.split(
        r"^## In short$|^## The whole CIFAR-10 stream$", REPRODUCTION, flags=re.M
    )
    numbers = re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", short)
    assert numbers
    assert all(number in long + READINGS for number in numbers)
