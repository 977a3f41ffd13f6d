"""What a known machine takes: its numbers are the benchmarks', and what follows is arithmetic."""

import json
from pathlib import Path

import pytest

from oclgrid.platform.yardstick import stage_time, yardstick
from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables.datasets import data_root, dataset, load
from oclgrid.trainables.spec import CellSpec

MEASURED = Path(__file__).parents[2] / "docs" / "performance.json"


def cell(method: str, *, data: str = "cifar10", memory: int = 500) -> CellSpec:
    cells = {"dataset": data, "memory": memory, "orders": 1, "method": method}
    return parse_sweep({"sweep": "x", "cells": cells}, where="file.yaml").cells[0]


def test_its_numbers_are_those_of_the_benchmarks() -> None:
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    figures = {e["name"]: e["figures"] for e in measured["entries"]}
    known = yardstick()
    assert measured["machine"]["hardware.cpu"] == known["machine"]
    for name, rate in known["trained_images_per_second"].items():
        assert figures[f"{name} batch"]["images/s"] == rate
    for side, ms in known["by_side"].items():
        told = figures[f"SDAF step at side {side}"]
        assert (told["step ms"], told["test ms/image"]) == (ms["step"], ms["test"])


def test_a_stage_is_its_trained_images_and_its_tests() -> None:
    rate, ms = yardstick()["trained_images_per_second"], yardstick()["by_side"]
    sdaf = stage_time(cell("sdaf"))
    assert sdaf is not None
    assert sdaf.train == pytest.approx(10_000 * 16 / rate["sdaf"])
    assert sdaf.inference == pytest.approx((6_000 + 500) * ms[32]["test"] / 1000)
    assert stage_time(cell("sdaf-euclid")) == sdaf
    ewc = stage_time(cell("ewc", memory=0))  # nothing is replayed, one rotation is tested
    assert ewc is not None
    assert ewc.train == pytest.approx(10_000 * 8 / rate["ewc"])
    assert ewc.inference == pytest.approx(6_000 * ms[32]["test"] / 4 / 1000)
    larger = stage_time(cell("sdaf", data="miniimagenet"))
    assert larger is not None
    assert larger.train == pytest.approx(sdaf.train / 2 * ms[84]["step"] / ms[32]["step"])


def test_the_images_of_a_dataset_are_counted() -> None:
    splits, info = load(dataset("digits"), data_root()), dataset("digits")
    assert (len(splits.train.labels), len(splits.test.labels)) == (
        info.train_images,
        info.test_images,
    )
