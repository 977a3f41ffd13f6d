"""Reports: whole in one file, safe to open, readable by everybody, no empty section."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from oclgrid.platform import page
from oclgrid.platform.cli import main
from oclgrid.platform.figures import confusion_figure
from oclgrid.platform.report import build_report
from oclgrid.platform.results import CellRun, SweepRun
from oclgrid.search_spaces.sweep import Sweep, parse_sweep
from oclgrid.trainables.spec import CellSpec

EVIL = "<script>alert('x')</script>\" onload=\"alert(1)"
PNG = confusion_figure([[1, 0], [0, 1]], [0, 1], title="t")
ALWAYS = ["results", "provenance", "cells"]
WITH_RESULTS = ["results", "stages", "forgetting", "time", "compare", "provenance", "cells"]


@dataclass
class Answers:
    """A store that answers from memory; a claim on real ones is in tests/contracts."""

    runs: dict[str, CellRun] = field(default_factory=dict)
    experiment_id: str | None = "1"
    files: dict[str, bytes] = field(default_factory=dict)

    def cells(self, specs: Iterable[CellSpec]) -> dict[str, CellRun]:
        return {s.cell_id: self.runs[s.cell_id] for s in specs if s.cell_id in self.runs}

    def stage_accuracies(self, run_ids: Iterable[str]) -> dict[str, list[float]]:
        return {run_id: [0.9, 0.8, 0.7, 0.6, 0.5] for run_id in run_ids}

    def sweep(self, name: str) -> SweepRun | None:
        return SweepRun(run_id="s", status="FINISHED", tags={}, started_at_ms=0, ended_at_ms=0)

    def artifact(self, run_id: str, path: str) -> bytes | None:
        return self.files.get(path)


def sweep(**fields: object) -> Sweep:
    cells = {"dataset": "cifar10", "memory": 500, "orders": 3, "method": ["scr", "sdaf"], **fields}
    made = parse_sweep({"sweep": "x", "about": "a sweep", "cells": cells}, where="file.yaml")
    return replace(made, text="sweep: x\n# <b>as written</b>\n")


def run(spec: CellSpec) -> CellRun:
    end = 0.6 + spec.class_order / 100 + (spec.method.name == "sdaf") / 20
    numbers = {"E": end, "A": 0.7, "F": 0.2, "beta": 0.9, "train_seconds": 60.0}
    return CellRun(
        run_id=f"run-{spec.cell_id}",
        status="FINISHED",
        stage=5,
        numbers={**numbers, "inference_seconds": 6.0},
        error="",
        ended_at_ms=1_700_000_000_000,
        tags={"commit": "c0ffee", "version.torch": "2.15.0", "hardware.cpu": "a processor"},
    )


def answers(made: Sweep) -> Answers:
    return Answers({spec.cell_id: run(spec) for spec in made.cells})


class Page(HTMLParser):
    """The elements of a page; refuses tags that do not close."""

    EMPTY = ("meta", "img", "br", "!doctype")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def sections(text: str) -> list[str | None]:
    return [s["id"] for s in Page(text).all("section")]


def test_a_report_has_every_section_there_is_content_for() -> None:
    made = sweep()
    assert sections(build_report(made, answers(made))) == WITH_RESULTS
    assert sections(build_report(made, Answers())) == ALWAYS


def test_pictures_of_cells_are_shown_with_beta() -> None:
    made = sweep()
    source = answers(made)
    source.files["confusion_matrix.png"] = PNG
    text = build_report(made, source)
    assert "confusion" in sections(text)
    alts = [image["alt"] or "" for image in Page(text).all("img")]
    assert sum("beta 0.900 (paper, one run: 0.8" in alt for alt in alts) == 1  # SDAF
    assert sum(alt.startswith("Confusion") for alt in alts) == 2


@pytest.mark.parametrize(
    ("name", "numbers", "told"),
    [
        ("cka", {"cka/seen": 0.8, "cka/unseen": 0.5}, "0.847"),
        ("ood", {"ood/mnist": 0.9, "ood/mnist_memory": 0.8}, "0.957"),
        ("tsne", {"tsne/kl_divergence": 1.5}, "1.500"),
        ("scree", {"scree/directions": 7.0}, "7.000"),
        ("centres", {"centres/test_by_stream_euclid": 0.5}, "0.500"),
    ],
)
def test_analyses_appear_where_they_were_made(
    name: str, numbers: dict[str, float], told: str
) -> None:
    made = sweep()
    source = answers(made)
    for spec in made.cells:
        old = source.runs[spec.cell_id]
        if spec.method.name == "sdaf":
            tags = {**old.tags, f"analysis.{name}": "digest"}
            source.runs[spec.cell_id] = replace(old, tags=tags, numbers={**old.numbers, **numbers})
    source.files[f"analyses/{name}.png"] = PNG
    source.files["analyses/scree.json"] = b'{"data": {"eigenvalues": [1.0, 0.1, 0.01]}}'
    text = build_report(made, source)
    assert name in sections(text)
    (part,) = re.findall(rf'<section id="{name}">.*?</section>', text, flags=re.DOTALL)
    assert told in part
    assert '<td class="w">scr</td>' not in part


def test_nothing_is_asked_for_from_anywhere() -> None:
    made = sweep()
    source = answers(made)
    source.files["confusion_matrix.png"] = PNG
    text = build_report(made, source)
    found = Page(text)
    for tag in ("link", "iframe", "object", "embed", "form", "base"):
        assert found.all(tag) == []
    for _, attributes in found.elements:
        assert (attributes.get("src") or "data:image/").startswith("data:image/")
        assert (attributes.get("href") or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text


def test_only_the_pages_own_script_may_run() -> None:
    text = build_report(sweep(), answers(sweep()))
    (policy,) = [m for m in Page(text).all("meta") if "http-equiv" in m]
    assert policy["http-equiv"] == "Content-Security-Policy"
    content = policy["content"] or ""
    assert content.startswith("default-src 'none'; img-src data:;")
    assert re.search(r"script-src 'sha256-[\w+/]+='$", content)
    assert text.count("<script>") == 1


def test_whatever_people_write_stays_text() -> None:
    made = sweep()
    made = replace(made, about=EVIL, text=EVIL)
    source = answers(made)
    first, second = made.cells[:2]
    failed = replace(source.runs[first.cell_id], status="FAILED", error=EVIL)
    source.runs[first.cell_id] = failed
    other = source.runs[second.cell_id]
    source.runs[second.cell_id] = replace(other, tags={"commit": EVIL, "version.<b>": EVIL})
    text = build_report(made, source)
    assert "alert(" in text
    assert text.count("<script") == 1
    assert "alert('x')" not in text
    assert not [a for _, attributes in Page(text).elements for a in attributes if a == "onload"]


def test_failed_cells_say_why() -> None:
    made = sweep()
    source = answers(made)
    first = made.cells[0]
    failed = replace(source.runs[first.cell_id], status="FAILED", error="the loss was nan")
    source.runs[first.cell_id] = failed
    text = build_report(made, source)
    assert "Failed cells" in text
    assert text.count("the loss was nan") == 2  # there, and in the list of all
    assert "5 of 6 cells are finished" in text


def test_tables_and_pictures_can_be_read_aloud() -> None:
    made = sweep()
    found = Page(build_report(made, answers(made)))
    assert found.all("html")[0]["lang"] == "en"
    assert all(head.get("scope") in ("col", "row") for head in found.all("th"))
    assert len(found.all("caption")) == len(found.all("table")) > 3
    assert all(image.get("alt") for image in found.all("img"))
    assert found.all("img")


def test_it_says_where_the_numbers_come_from() -> None:
    made = sweep()
    text = build_report(made, answers(made))
    for told in ("c0ffee", "2.15.0", "a processor", made.cells[0].data_digest, "wall time"):
        assert told in text
    assert "&lt;b&gt;as written&lt;/b&gt;" in text


def test_verdicts_and_their_rule_are_shown() -> None:
    made = sweep()
    text = build_report(made, answers(made))
    assert "95 % Welch interval" in text
    assert '<td class="w">sdaf, paper</td>' in text  # the paper's stages
    assert "p cannot fall below 0.25" in text


def test_the_same_results_are_the_same_bytes() -> None:
    made = sweep()
    assert build_report(made, answers(made)) == build_report(made, answers(made))


def test_print_phone_and_dark_mode_are_thought_of() -> None:
    for word in ("@media print", "@media (max-width", "color-scheme: light dark", "overflow-x"):
        assert word in page.STYLE


def test_the_command_needs_a_store_and_a_folder_to_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OCLGRID_STORE", raising=False)
    assert main(["report", "quickstart"]) == 2
    assert "there is no store" in capsys.readouterr().err
    assert main(["report", "quickstart", "--output", "no/where.html"]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
