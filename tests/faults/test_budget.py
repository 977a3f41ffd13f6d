"""A budget that is spent ends a sweep after the stages under way, and keeps it ended."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SWEEP = """
sweep: faults
cells: {dataset: digits, memory: 50, orders: 3, method: er, stream_fraction: 0.1}
budget: {core_hours: 0.000001}
"""


def test_no_slot_trains_more_than_a_stage_beyond_the_budget(
    tmp_path: Path, start: Callable[[Path, str], Any]
) -> None:
    (tmp_path / "faults.yaml").write_text(SWEEP)
    first = start(tmp_path, "store")
    assert first.wait() == 130, first.said()
    assert "the budget of 1e-06 core hours is spent, 3 cells are to go" in first.said()
    assert 1 <= first.said().count(" of 5, accuracy") <= (os.cpu_count() or 1)
    second = start(tmp_path, "store")
    assert second.wait() == 130, second.said()
    assert " of 5, accuracy" not in second.said()
    (tmp_path / "faults.yaml").write_text(SWEEP.replace("0.000001", "100"))
    third = start(tmp_path, "store")
    assert third.wait() == 0, third.said()
    assert "were expected" in third.said()
    for command in (first, second, third):
        command.assert_nothing_left()
