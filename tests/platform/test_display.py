"""The time left that people see: by the stages seen so far, trained and adopted ones apart."""

import threading
import time
from typing import Any

import pytest

from oclgrid.platform import display as display_module
from oclgrid.platform.display import Display, clock
from oclgrid.platform.yardstick import stage_time
from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables.loop import Progress
from oclgrid.trainables.spec import CellSpec

VARIANTS = [{}, {"classifier": "softmax"}, {"classifier": "ncm-euclid"}]
SWEEP = {
    "sweep": "x",
    "cells": {"dataset": "digits", "memory": 10, "orders": 1, "method": "sdaf"},
    "overrides": {"sdaf": VARIANTS},
}


def stage(spec: CellSpec, number: int, seconds: float, *, is_adopted: bool) -> dict[str, Any]:
    told = {"stage": number, "stage_seconds": seconds, "is_adopted": is_adopted, "E": 0.5}
    return {**told, "cell_id": spec.cell_id, "cell_done": number == 5, "next": ""}


def test_stages_that_others_trained_are_not_taken_for_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cells = {c.cell_id: c for c in parse_sweep(SWEEP, where="file.yaml").cells}
    first, second, _ = cells.values()
    display = Display()
    with display.watching(
        cells, dict.fromkeys(cells, 0), slots=1, poll=dict, adopting=list(cells)[1:]
    ):
        display.result(stage(first, 1, 100.0, is_adopted=False))
        display.result(stage(first, 5, 100.0, is_adopted=False))
        display.result(stage(second, 1, 2.0, is_adopted=True))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[0/3, 7 min left]")  # 4 stages of 100 s
    assert lines[1].startswith("[1/3] ")
    assert lines[2].startswith("[1/3, 18 s left]")  # 9 adopted ones of 2 s


def test_a_method_that_has_not_begun_is_expected_to_be_as_slow_here_as_those_seen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fields = {"dataset": "digits", "memory": 10, "orders": 1, "method": ["er", "mir"]}
    made = parse_sweep({"sweep": "x", "cells": fields}, where="file.yaml")
    cells = {c.cell_id: c for c in made.cells}
    er, mir = cells.values()
    known_er, known_mir = stage_time(er), stage_time(mir)
    assert known_er
    assert known_mir
    slower = 1000 / (known_er.train + known_er.inference)
    expected = 4 * 1000 + 5 * slower * (known_mir.train + known_mir.inference)
    assert expected > 10_000  # MIR takes longer
    display = Display()
    with display.watching(cells, dict.fromkeys(cells, 0), slots=2, poll=dict):
        display.result(stage(er, 1, 1000.0, is_adopted=False))
        display.result(stage(mir, 1, 1000.0, is_adopted=False))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"[0/2, {clock(expected / 2)} left] er")
    assert lines[1].startswith("[0/2, 67 min left] mir")  # 8 stages on 2 slots


def test_no_time_is_told_while_a_method_nobody_has_measured_has_not_begun(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"dataset": "digits", "memory": 10, "orders": 1, "method": ["er", "sdaf"]}
    made = parse_sweep({"sweep": "x", "cells": fields}, where="file.yaml")
    cells = {c.cell_id: c for c in made.cells}
    monkeypatch.setattr(display_module, "stage_time", lambda spec: None)
    display = Display()
    with display.watching(cells, dict.fromkeys(cells, 0), slots=2, poll=dict):
        for spec in cells.values():
            display.result(stage(spec, 1, 100.0, is_adopted=False))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[0/2] er")
    assert lines[1].startswith("[0/2, 7 min left] sdaf")


def test_a_first_stage_is_told_the_time_by_its_batches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec,) = parse_sweep({**SWEEP, "overrides": {}}, where="file.yaml").cells
    looks = iter([(1000.0, 20), (1010.0, 30), (1020.0, 40)])
    is_told = threading.Event()
    now = 0.0

    def poll() -> dict[str, Progress]:
        nonlocal now
        if (look := next(looks, None)) is None:
            is_told.set()
            return {}
        now, batch = look
        at = {"stage": 2, "batch": batch, "batches": 100, "loss": 1.0}
        return {spec.cell_id: Progress(**at, images_per_second=1.0, live={})}

    monkeypatch.setattr(display_module, "PLAIN_SECONDS", 0.01)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    display = Display()
    with display.watching({spec.cell_id: spec}, {spec.cell_id: 1}, slots=1, poll=poll):
        assert is_told.wait(30)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[0/1] sdaf")  # one look tells no speed
    assert lines[1].startswith("[0/1, 6 min left]")  # 370 batches, one a second
    assert lines[2].startswith("[0/1, 6 min left]")
