"""Reports of searches: the best beside the paper, every trial and picture, from the store alone."""

import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from oclgrid.platform import confirm
from oclgrid.platform.cli import main
from oclgrid.platform.figures import confusion_figure
from oclgrid.platform.results import CellRun, SweepRun
from oclgrid.platform.search_report import SHOWS, build_search_report
from oclgrid.platform.trials import TrialRow, beside_paper, best_of, read_trials, trials_csv
from oclgrid.search_spaces.search import Search, parse_search
from oclgrid.search_spaces.space import Value
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec

PNG = confusion_figure([[1, 0], [0, 1]], [0, 1], title="t")
TEXT = """
search: hill
about: a <hill>
space: sdaf-lambda-tau
cell: {dataset: digits, memory: 50, method: sdaf, orders: 2}
budget: {trials: 4}
"""
ALWAYS = ["best", "trials", "provenance", "cells"]


def search(**changes: Any) -> Search:
    return replace(parse_search({**yaml.safe_load(TEXT), **changes}, where="x"), text=TEXT)


def row(made: Search, number: int, point: dict[str, Value], state: str = "finished",
        **fields: float) -> TrialRow:  # fmt: skip
    numbers = {"E": 0.5, "A": 0.61 + number / 1000, "F": 0.25, "beta": 0.9, **fields}
    return TrialRow(
        number=number,
        state=state,
        point=point,
        values=tuple(numbers[o] for o in made.objectives),
        steps={},
        reached=10 if state == "finished" else 3,
        numbers=numbers,
        seconds=12.0,
        cells=tuple(spec.cell_id for spec in made.cells(point)),
        error="",
    )


def rows(made: Search) -> list[TrialRow]:
    """The paper's point, a pruned, the best and a failed one."""
    return [
        row(made, 0, dict(made.space.reference)),
        row(made, 1, {"lambda": 8.0, "tau_w": 0.1}, "pruned", A=0.99),
        row(made, 2, {"lambda": 4.0, "tau_w": 1 / 3}),
        replace(row(made, 3, {"lambda": 5.0, "tau_w": 0.2}, "failed"), error="<b>odd</b>"),
    ]


@dataclass
class Answers:
    """A store that answers from memory; a claim on real ones is in tests/contracts."""

    trials: str | None
    tags: dict[str, str] = field(default_factory=dict)
    runs: dict[str, CellRun] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    status: str = "FINISHED"
    experiment_id: str | None = "1"

    def cells(self, specs: Iterable[CellSpec]) -> dict[str, CellRun]:
        return {s.cell_id: self.runs[s.cell_id] for s in specs if s.cell_id in self.runs}

    def stage_accuracies(self, run_ids: Iterable[str]) -> dict[str, list[float]]:
        return {}

    def sweep(self, name: str) -> SweepRun | None:
        return None

    def search(self, study: str) -> SweepRun | None:
        return SweepRun(
            run_id="s", status=self.status, tags=self.tags, started_at_ms=0, ended_at_ms=0
        )

    def artifact(self, run_id: str, path: str) -> bytes | None:
        if path == "trials.csv":
            return None if self.trials is None else self.trials.encode()
        return self.files.get(path)


def run(spec: CellSpec) -> CellRun:
    end = 0.6 + spec.class_order / 100 + (spec.method != search().around.method) / 20
    numbers = {"E": end, "A": 0.7, "F": 0.2, "beta": 0.9, "train_seconds": 60.0}
    return CellRun(
        run_id=f"run-{spec.cell_id}",
        status="FINISHED",
        stage=5,
        numbers={**numbers, "inference_seconds": 6.0},
        error="",
        ended_at_ms=1_700_000_000_000,
        tags={"commit": "c0ffee", "hardware.cpu": "a processor"},
    )


def answers(made: Search) -> Answers:
    cells = [spec for r in rows(made) for spec in made.cells(r.point)]
    return Answers(trials_csv(made, rows(made)), runs={c.cell_id: run(c) for c in cells})


def sections(text: str) -> dict[str, str]:
    return dict(re.findall(r'<section id="(\w+)">(.*?)</section>', text, flags=re.DOTALL))


def lines_of(part: str) -> list[list[str]]:
    lines = re.findall(r"<tr>(.*?)</tr>", part, flags=re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line) for line in lines]


def test_the_best_stands_beside_the_paper() -> None:
    made = search()
    part = sections(build_search_report(made, answers(made)))["best"]
    assert lines_of(part) == [
        ["point", "trial", "lambda", "tau_w", "E %", "A %", "F", "beta"],
        ["best", "2", "4", "0.333", "50.00", "61.20", "0.2500", "0.9000"],
        ["paper", "0", "1.5", "0.5", "50.00", "61.00", "0.2500", "0.9000"],
    ]
    assert "2 finished, 1 pruned, 1 failed" in part
    assert "Judged by A on validation data, the mean over 2 class orders" in part
    assert "going on" not in part


def test_every_trial_is_listed_with_its_state_steps_and_error() -> None:
    made = search()
    text = build_search_report(made, answers(made))
    header, *lines = lines_of(sections(text)["trials"])
    assert header[-3:] == ["steps", "seconds", "error"]
    assert [" ".join(line[:2]) for line in lines] == [
        "0 finished",
        "1 pruned",
        "2 finished",
        "3 failed",
    ]
    assert lines[1][-3:] == ["3 of 10", "12", ""]
    assert lines[3][-1] == "&lt;b&gt;odd&lt;/b&gt;"


def test_it_says_where_the_numbers_come_from() -> None:
    made = search()
    parts = sections(build_search_report(made, answers(made)))
    for told in ("c0ffee", "a processor", made.study, made.around.data_digest, "&lt;hill&gt;"):
        assert told in parts["provenance"]
    assert "8 of 8 cells are finished" in parts["cells"]
    assert "trial 2, order 1" in parts["cells"]


def test_every_picture_filed_is_shown_and_none_from_before() -> None:
    made = search(space="sdaf-views")
    source = Answers(trials_csv(made, [row(made, 0, dict(made.space.reference))]))
    assert list(sections(build_search_report(made, source))) == ALWAYS
    first, second, third = list(made.space.ranges)[1:4]
    old, new = f"contour_{first}_{second}.png", f"contour_{first}_{third}.png"
    source.files = dict.fromkeys([*SHOWS, old, new], PNG)
    source.tags = {"pictures": f'["history.png", "{new}"]'}
    text = build_search_report(made, source)
    assert re.findall(r'<img alt="(.*?)" src="data:image/png', text) == [
        SHOWS["history.png"],
        f"The objective over {first} and {third}, near finished trials.",
    ]
    source.tags = {}
    assert build_search_report(made, source).count("<img") == len(SHOWS)


def test_a_confirmed_point_is_paired_with_the_papers() -> None:
    made = search()
    source = answers(made)
    assert "confirmed" not in sections(build_search_report(made, source))
    chosen = confirm.confirmation(made, rows(made)[2])
    source.runs |= {spec.cell_id: run(spec) for spec in chosen.sweep.cells}
    part = sections(build_search_report(made, source))["confirmed"]
    assert "trial 2 minus the paper&#x27;s point" in part
    assert "mean +5.0 %" in part


def test_a_search_under_way_is_said_to_be() -> None:
    made = search()
    source = answers(made)
    source.status = "RUNNING"
    assert "It is going on or was killed" in build_search_report(made, source)


def test_trials_come_back_from_their_file_as_they_were() -> None:
    made = search()
    assert read_trials(made, trials_csv(made, rows(made))) == rows(made)
    views = search(space="sdaf-views")
    points = [p for _, p in zip(range(9), views.space.grid(2), strict=False)]
    mixed = [row(views, i, p) for i, p in enumerate([*points, dict(views.space.reference)])]
    assert read_trials(views, trials_csv(views, mixed)) == mixed
    waiting = replace(rows(made)[0], state="waiting", point={}, values=(), numbers={}, cells=())
    assert read_trials(made, trials_csv(made, [waiting])) == [waiting]


def test_the_best_is_the_first_of_its_value_and_of_several_objectives_what_none_betters() -> None:
    one, two = search(), search(objective=["A", "F"])
    pairs = [(0.8, 0.3), (0.9, 0.2), (0.9, 0.2), (0.7, 0.1), (0.6, 0.1)]
    by_one, by_both = (
        [row(s, i, {}, A=a, F=f) for i, (a, f) in enumerate(pairs)] for s in (one, two)
    )
    assert [r.number for r in best_of(one, by_one)] == [1]
    assert [r.number for r in best_of(two, by_both)] == [1, 2, 3]
    assert best_of(one, [replace(by_one[0], state="pruned")]) == []
    assert [label for label, _ in beside_paper(two, by_both)] == ["best", "", ""]


def test_a_search_without_trials_is_refused_in_one_line() -> None:
    with pytest.raises(SpecError, match=r"holds no trials of the search hill .* `oclgrid tune`"):
        build_search_report(search(), Answers(None))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sdaf-lambda-tau-digits"], "there is no store to report on"),
        (["sdaf-lamda-tau"], "unknown sweep or search 'sdaf-lamda-tau'; did you mean"),
        (["sdaf-views", "--from", "cells.parquet"], "an export holds no searches"),
        (["quickstart", "--method", "er"], "--method is for searches"),
    ],
)
def test_what_cannot_be_reported_is_refused_in_one_line(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OCLGRID_STORE", raising=False)
    assert main(["report", *arguments]) == 2
    assert f"oclgrid: {told}" in capsys.readouterr().err.replace("--from is for sweeps: ", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command_reads_the_stores_files_and_needs_no_heavy_library(
    server_uri: str, store_folder: Path, tmp_path: Path
) -> None:
    from oclgrid.platform.store import Store

    (tmp_path / "hill.yaml").write_text(TEXT)
    made, store = search(), Store(server_uri)
    run_id = store.find_or_create("hill", kind="search", search="hill", study=made.study)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        code = "import sys; sys.modules |= dict.fromkeys(('torch', 'mlflow', 'ray', 'optuna')); "
        code += "from oclgrid.platform.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, *words, "--store", str(store_folder)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    report, export = ("report", "hill.yaml"), ("export", "hill.yaml", "--to", "kept")
    for early in (call(*report), call(*export)):
        assert early.returncode == 2, early.stderr
        assert "holds no trials of the search hill" in early.stderr
    assert not (tmp_path / "kept").exists()
    store.client.log_text(run_id, trials_csv(made, rows(made)), "trials.csv")
    for done in (call(*report), call(*export)):
        assert done.returncode == 0, done.stderr
    kept = (tmp_path / "kept" / "hill" / "trials.csv").read_text()
    assert read_trials(made, kept) == read_trials(made, trials_csv(made, rows(made)))
    assert list(sections((tmp_path / "hill.html").read_text())) == ALWAYS
