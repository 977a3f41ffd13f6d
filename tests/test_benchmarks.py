"""The benchmarks measure what they say, and two results can be compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare, evaluation, files, growth, gss, layers, step, views
from benchmarks.learners import LAST_STAGE, learner, take
from benchmarks.measure import table
from benchmarks.picture import PANELS, picture, points
from benchmarks.sweep import Span, _pauses

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
RESULTS: list[dict[str, Any]] = [
    json.loads((ROOT / "docs" / name).read_text())
    for name in ("performance.json", "performance-intel.json")
]
RESULT = RESULTS[0]


def result(ratio: float, *, spread: float = 0.0, is_gain: bool = True) -> dict[str, Any]:
    named = {"name": "a", "ratio": ratio, "spread": spread, "against": "b", "figures": {}}
    return {"machine": {"version.torch": "1"}, "entries": [{**named, "is_gain": is_gain}]}


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        (result(2.0), result(1.0), "WORSE"),
        (result(1.0), result(2.0), "better"),
        (result(1.0, is_gain=False), result(2.0, is_gain=False), "WORSE"),
        (result(2.0, is_gain=False), result(1.0, is_gain=False), "better"),
        (result(1.0), result(0.95), "same"),
        (result(1.0, spread=0.3), result(0.7, spread=0.1), "same"),
    ],
)
def test_a_change_beyond_the_noise_is_told(
    old: dict[str, Any],
    new: dict[str, Any],
    word: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    for path, content in zip(paths, (old, new), strict=True):
        path.write_text(json.dumps(content))
    assert compare.main([str(p) for p in paths]) == (word == "WORSE")
    assert capsys.readouterr().out.rstrip().endswith(word)


def test_another_machine_is_told_and_other_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, odd = (tmp_path / f"{n}.json" for n in ("old", "new", "odd"))
    old.write_text(json.dumps(result(1.0)))
    new.write_text(json.dumps(result(1.0) | {"machine": {"version.torch": "2"}}))
    odd.write_text("[]")
    assert compare.main([str(old), str(new)]) == 0
    assert "version.torch: 1, now 2" in capsys.readouterr().out
    assert compare.main([str(old), str(odd)]) == 2
    assert compare.main([str(old)]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_a_slot_pauses_from_the_end_of_a_cell_to_the_start_of_the_next() -> None:
    spans = [Span(0, 10, 9), Span(0, 14, 9), Span(11, 20, 9), Span(15.5, 30, 9), Span(22, 30, 9)]
    assert _pauses(spans) == [1, 1.5, 2]


def test_the_quick_suites_measure_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    for suite in (step, views, evaluation, files):
        monkeypatch.setattr(suite, "REPEATS", 2)
    monkeypatch.setattr(step, "METHODS", ("er",))
    monkeypatch.setattr(evaluation, "SAMPLE", 8)
    monkeypatch.setattr(gss, "STAGES", 3)
    monkeypatch.setattr(gss, "BATCHES", 1)
    entries = [e for s in (step, views, evaluation, files, gss) for e in s.measure()]
    assert len({e.name for e in entries}) == len(entries) == 12
    assert all(e.ratio > 0 for e in entries)


def test_costs_of_a_size_are_measured_in_a_process_of_its_own() -> None:
    small, large = growth._point("side", 8), growth._point("side", 16)
    assert small["test ms/image"] < large["test ms/image"]
    assert all(value > 0 for value in small.values())


def test_a_step_goes_through_the_convolutions_that_are_measured() -> None:
    method = learner("sdaf")
    incoming = next(method.stream.batches(LAST_STAGE))
    found = layers._layers(method.net["backbone"], lambda: take(method, incoming))
    by_images = 2 * 160 * 32**2 * 3 * 20 * 3**2  # which have no gradients
    counted = sum(count * layer.flop for layer, count in found.items()) + by_images
    assert counted == pytest.approx(160 * 3 * 2 * step.MULTIPLY_ADDS, rel=1e-3)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r["machine"]["hardware.cpu"])
def test_the_page_shows_the_results_it_comes_with(result: dict[str, Any]) -> None:
    assert table(result) in PAGE
    assert result["machine"]["hardware.cpu"].replace("(R)", "") in PAGE


def test_the_picture_shows_every_size_that_was_measured() -> None:
    found = points(RESULT)
    assert {name: tuple(sizes) for name, sizes in found.items()} == growth.SIZES
    assert set(PANELS) == set(growth.SIZES)
    assert picture(RESULT).startswith(b"\x89PNG")
