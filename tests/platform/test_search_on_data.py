"""A search on data without a published digest: every command finds the same study and cells."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from oclgrid.platform import run
from oclgrid.platform.cli import main
from oclgrid.platform.result_commands import search_of
from oclgrid.platform.study import Study, open_storage, suggest
from oclgrid.search_spaces import sweep
from oclgrid.search_spaces.search import Search, on_data, read_search
from oclgrid.search_spaces.sweep import Sweep, parse_sweep
from oclgrid.trainables.datasets import DATASETS, dataset, load
from oclgrid.trainables.decoded import UNDECODED, cache_path, known_digest
from oclgrid.trainables.miniimagenet import Counts, miniimagenet

TINY = Counts(pickled_classes=(2, 1, 1), train=20, test=2, side=8)
CELL = {"dataset": "miniimagenet", "memory": 4, "method": "sdaf"}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up Mini-ImageNet of four classes, not decoded yet."""
    info = replace(dataset("miniimagenet"), classes=4, stages=2, side=8,
                   read=partial(miniimagenet, counts=TINY))  # fmt: skip
    monkeypatch.setitem(DATASETS, "miniimagenet", info)
    for label in range(4):
        folder = tmp_path / "mini-imagenet" / f"n0000000{label}"
        folder.mkdir(parents=True)
        for image in range(TINY.per_class):
            Image.new("RGB", (8, 8), (60 * label, 9 * image, 0)).save(folder / f"{image:03}.jpg")
    return tmp_path


@pytest.fixture
def search(data: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """A search read from a file beside the data."""
    monkeypatch.chdir(data)
    text = f"search: mini\nspace: sdaf-lambda-tau\ncell: {CELL}\nbudget: {{trials: 2}}\n"
    Path("mini.yaml").write_text(text)
    return read_search("mini.yaml")


def decode(root: Path) -> str:
    load(dataset("miniimagenet"), root)
    return known_digest(dataset("miniimagenet"), root)


def test_a_search_gets_the_digest_that_a_sweep_gets(search: Search, data: Path) -> None:
    assert search.around.data_digest == UNDECODED
    assert on_data(search, data) == search
    digest = decode(data)
    found = on_data(search, data)
    assert found.around.data_digest == digest
    grid = {**CELL, "orders": 1, "protocol": "validation"}
    twin = sweep.on_data(parse_sweep({"sweep": "x", "cells": grid}, where="x"), data)
    assert twin.cells == found.cells(found.space.reference)
    assert found.study != search.study


def test_a_report_asks_for_decoded_data_and_then_for_the_study_that_was_searched(
    search: Search, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data", str(data)]
    assert main(["report", "mini.yaml", *where]) == 2
    assert "oclgrid: miniimagenet is not decoded below the data" in capsys.readouterr().err
    decode(data)
    asked = SimpleNamespace(sweep="mini.yaml", method=None, source=None, data=str(data))
    assert search_of(asked).study == on_data(search, data).study


def test_what_is_confirmed_is_told_by_the_ids_of_the_cells_that_ran(
    search: Search, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = decode(data)
    searched = on_data(search, data)
    study = Study(searched, open_storage("study.journal"))
    study.prepare()
    for value in (0.5, 0.9):
        trial = study._study.ask()
        for name, range_ in searched.space.ranges.items():
            suggest(trial, name, range_)
        study._study.tell(trial, value)
    study.set_filed()
    cache_path(dataset("miniimagenet"), data).unlink()
    ran: list[tuple[Sweep, Mapping[str, Any]]] = []

    def train_nothing(made: Sweep, *_: object, labels: Mapping[str, Any]) -> run.Outcome:
        ran.append((made, labels))
        return run.Outcome(rows=[])

    monkeypatch.setattr(run, "run_sweep", train_nothing)
    where = ["--data", str(data), "--study-storage", "study.journal"]
    assert main(["tune", "mini.yaml", "--confirm", *where]) == 0
    assert f"study {searched.study}: 2 finished" in capsys.readouterr().out
    ((confirmed, labels),) = ran
    assert {c.data_digest for c in confirmed.cells} == {digest}
    assert set(labels) == {c.cell_id for c in confirmed.cells}
    assert {label["chosen_from"] for label in labels.values()} == {searched.study}
