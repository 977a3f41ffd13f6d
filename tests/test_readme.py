"""Everything the README says to type is typed here, in the README's own words."""

import csv
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from oclgrid.search_spaces.paper import paper
from oclgrid.search_spaces.sweep import read_sweep
from oclgrid.trainables.configs.scl import SclConfig
from oclgrid.trainables.configs.scr import ScrConfig
from oclgrid.trainables.configs.sdaf import SdafConfig

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
REPRODUCTION = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")

BY_CI = {"make quickstart", "make test"}
"""Run by .ci/run, which this test is part of."""
NEEDS_NETWORK = {"oclgrid data cifar10 --download", "oclgrid run cifar10-tenth"}
BY_OTHER_TESTS = {"mlflow models predict": "tests/platform/test_cell_log.py"}


def blocks() -> list[tuple[str, str]]:
    """Return language and text of the README's code blocks."""
    return re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [
        line.split("  #")[0].strip().removeprefix(".venv/bin/")
        for language, text in blocks()
        if not language
        for line in text.replace("\\\n", " ").splitlines()
    ]
    return [line for line in lines if line and not line.startswith("|")]


def run(command: str, folder: Path, code: int = 0) -> str:
    arguments = command.removeprefix("oclgrid ").split()
    result = subprocess.run(
        [sys.executable, "-m", "oclgrid.platform.cli", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert result.returncode == code, result.stderr
    return result.stdout or result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    sweep, search = [text for language, text in blocks() if language == "yaml"]
    (folder / "my-first.yaml").write_text(sweep)
    (folder / "my-search.yaml").write_text(search)
    return folder


def test_every_command_is_run_by_a_test() -> None:
    here = Path(__file__).read_text()
    for command in commands():
        if command in BY_CI:
            assert command in (ROOT / ".ci" / "run").read_text()
        elif "mlflow models predict" in command:
            assert (
                '"models", "predict"'
                in (ROOT / BY_OTHER_TESTS["mlflow models predict"]).read_text()
            )
        else:
            assert here.count(f'"{command}"') >= 1, command


def test_the_sweep_file_plans_runs_and_makes_a_table(folder: Path) -> None:
    plan = run("oclgrid plan my-first.yaml", folder)
    assert "8 cells: 8 missing" in plan
    assert not (folder / "oclgrid-store").exists()
    shown = run("oclgrid run my-first.yaml", folder)
    assert shown.count("| digits") == 4
    text = run("oclgrid table my-first.yaml --format csv --no-seconds", folder)
    rows = list(csv.DictReader(text.splitlines()))
    assert [(r["memory"], r["method"], r["n"]) for r in rows] == [
        (memory, method, "2") for memory in ("50", "200") for method in ("er", "sdaf")
    ]
    assert all(0 < float(r["E_mean"]) <= 1 and float(r["E_std"]) >= 0 for r in rows)
    (report,) = (folder / "oclgrid-store").glob("artifacts/**/report.html")
    assert "Stage-wise accuracy" in report.read_text(encoding="utf-8")
    server_log = (folder / "oclgrid-store" / "server.log").read_bytes()
    again = run("oclgrid run my-first.yaml", folder)
    assert again.splitlines()[2:] == shown.splitlines()[2:]
    assert (folder / "oclgrid-store" / "server.log").read_bytes() == server_log  # none started


def test_results_are_printed_compared_and_taken_home(folder: Path) -> None:
    run("oclgrid table my-first.yaml --format latex --output my-first.tex", folder)
    assert r"\toprule" in (folder / "my-first.tex").read_text()
    compared = run("oclgrid compare my-first.yaml sdaf er", folder)
    assert compared.count("| digits") == 2
    run("oclgrid export my-first.yaml --to results", folder)
    taken = run("oclgrid table my-first.yaml --from results/cells.parquet", folder)
    assert taken == run("oclgrid table my-first.yaml", folder)


def test_the_report_holds_the_analyses_asked_for(folder: Path) -> None:
    assert "oclgrid report quickstart" in commands()
    run("oclgrid report my-first.yaml", folder)
    page = (folder / "my-first.html").read_text()
    assert 'id="cka"' in page
    assert 'id="ood"' in page


def test_a_search_finds_a_point_and_confirms_it(folder: Path) -> None:
    found = run("oclgrid tune my-search.yaml", folder)
    assert "no test image was used" in found
    assert "| paper |" in found
    again = run("oclgrid tune my-search.yaml --confirm", folder)
    assert "paper's point" in again
    run("oclgrid report my-search.yaml", folder)
    page = (folder / "my-search.html").read_text()
    assert 'id="best"' in page
    assert 'id="pictures"' in page


def test_the_ui_serves_the_runs_until_it_is_stopped(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert "oclgrid ui quickstart" in commands()
    with subprocess.Popen(
        [sys.executable, "-m", "oclgrid.platform.cli", "ui", "my-first.yaml", "--port", str(port)],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as ui:
        assert ui.stdout is not None
        line = ui.stdout.readline()
        assert f"http://127.0.0.1:{port}" in line
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            assert b"<title>MLflow</title>" in page.read()
        os.kill(ui.pid, signal.SIGINT)
        assert ui.wait(timeout=60) == 0


def test_listings_name_what_there_is(tmp_path: Path) -> None:
    text = run("oclgrid list", tmp_path)
    for name in ("er", "scr", "sdaf", "digits", "cifar10", "quickstart", "cifar10-tenth"):
        assert name in text


def test_the_commands_that_need_the_network_are_sound_up_to_it(tmp_path: Path) -> None:
    assert set(commands()) >= NEEDS_NETWORK
    assert "11 missing" in run("oclgrid plan cifar10-tenth", tmp_path)
    told = run(f"oclgrid data cifar10 --data {tmp_path}", tmp_path, code=2)
    assert "oclgrid data cifar10 --download" in told


def test_the_table_shown_is_of_the_quickstart_as_it_is_now() -> None:
    preset = yaml.safe_load((ROOT / "search_spaces/presets/quickstart.yaml").read_text())
    shown = [line.split("|")[1:5] for line in README.splitlines() if line.startswith("| digits")]
    methods = [(cells[1].strip(), cells[2].strip()) for cells in shown]
    assert methods == [
        (str(m), k) for m in preset["cells"]["memory"] for k in preset["cells"]["method"]
    ]
    assert {cells[3].strip() for cells in shown} == {str(preset["cells"]["orders"])}


def exported(sweep: str) -> str:
    """Return the table of a sweep from what was exported of it."""
    told = run(f"oclgrid table {sweep} --from results/cells.parquet --no-seconds", ROOT)
    return told.split("\n\n")[0]


def exported_cells() -> dict[str, dict[str, Any]]:
    """Return everything that was exported, by cell id."""
    rows = pq.read_table(ROOT / "results" / "cells.parquet").to_pylist()
    return {row["cell_id"]: row for row in rows}


def test_the_tenth_of_cifar10_shown_is_what_was_exported() -> None:
    table = exported("cifar10-tenth")
    assert table in REPRODUCTION
    rows = [line.split("|")[1:-1] for line in table.splitlines()]
    ours = ["|".join(["", *row[:5], *row[8:], ""]) for row in rows]
    assert "\n".join(ours) in README


def test_the_classifiers_shown_are_what_was_exported() -> None:
    assert exported("classifiers-full") in REPRODUCTION
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


def test_what_was_exported_need_not_be_trained_again(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results", tmp_path / "results")
    run("oclgrid store copy results/cells.parquet oclgrid-store", tmp_path)
    assert "3 cells: 3 finished" in run("oclgrid plan cifar100-full", tmp_path)


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
        half = 4.303 * stdev(lead) / 3**0.5  # Student's t of 2 degrees of freedom, 0.975
        low, high = mean(lead) - half, mean(lead) + half
        numbers = [*(f"{x:+.1f}" for x in lead), f"{mean(lead):+.1f} ({low:+.1f} to {high:+.1f})"]
        row = r" +\| +".join(map(re.escape, [named, *numbers]))
        assert re.search(rf"\| {row} \|", REPRODUCTION)


def test_the_hunt_for_the_gap_quotes_what_was_exported() -> None:
    told = " ".join(REPRODUCTION.split())
    by_id = exported_cells()

    def lost(cell_id: str) -> str:
        *_, before, last = by_id[cell_id]["stage_accuracies"]
        return f"{100 * (before - last):.1f}"

    for cell in read_sweep("cifar10-full").cells:
        if cell.method.name not in ("er", "dvc") and cell.cell_id in by_id:
            named = f"{cell.method.name}, order {cell.class_order}"
            assert re.search(rf"\| {named} +\| +{lost(cell.cell_id)} \|", REPRODUCTION)
    plain = read_sweep("readings-tenth").cells[:3]
    nought, one, two = (lost(cell.cell_id) for cell in plain)
    assert f"{nought} points in the last stage of order 0, {one} in that of order 1" in told
    assert f"{two} in that of order 2" in told
    without, *normed_ways = (by_id[cell.cell_id] for cell in read_sweep("heads-full").cells[:5])
    whole = normed_ways[0]
    ends = [f"{100 * row[name]:.1f}" for name in ("E", "A") for row in (whole, without)]
    assert "E is {} with it and {} % without, A {} and {} %".format(*ends) in told
    *early, last = [f"{100 * a:.1f}" for a in whole["stage_accuracies"]]
    assert f"stage by stage {', '.join(early)} and {last} %" in told
    named = "{:.1f} with Mahalanobis, {:.1f} of unit length, {:.1f} with Euclid, {:.1f} with both"
    assert named.format(*(100 * row["E"] for row in normed_ways)) in told


def test_other_centres_than_those_of_exemplars_are_quoted_as_exported() -> None:
    by_id = exported_cells()
    orders = [by_id[cell.cell_id] for cell in read_sweep("classifiers-validation").cells[:3]]
    for kind, rows in (
        ("test_by_exemplars", orders),
        ("test_by_stream", orders),
        ("test_by_peers", orders[2:]),
        ("exemplars_by_exemplars", orders),
    ):
        numbers = [
            ", ".join(f"{100 * row[f'centres/{kind}_{distance}']:.1f}" for row in rows)
            for distance in ("euclid", "mahalanobis")
        ]
        told = (re.escape(" and ".join(n.rsplit(", ", 1))) for n in numbers)
        assert re.search(r"\| +" + r" \| +".join(told) + r" \|", REPRODUCTION)
    exemplars, stream, peers = (
        100 * orders[2][f"centres/test_by_{kind}_mahalanobis"]
        for kind in ("exemplars", "stream", "peers")
    )
    told_gain = f"Of the {stream - exemplars:.1f} points that Mahalanobis gains in class order 2, "
    assert told_gain + f"{peers - exemplars:.1f} remain" in REPRODUCTION
    assert exported("classifiers-validation") in REPRODUCTION


def test_the_trend_over_draws_is_quoted_as_exported() -> None:
    by_id = exported_cells()
    ours, larger = read_sweep("classifiers-full").cells[0], read_sweep("table1-cifar10").cells[-3]
    assert (larger.method.name, larger.memory_size, larger.class_order) == ("sdaf", 1000, 0)
    held_out, many = (read_sweep(n).cells[0] for n in ("classifiers-validation", "cifar100-full"))
    for analysed, tested in ((held_out, ours), (larger, larger), (many, many)):
        row = by_id[analysed.cell_id]
        exemplars, stream = (
            [100 * row[f"centres/test_by_{kind}_{d}"] for d in ("euclid", "mahalanobis")]
            for kind in ("exemplars", "stream")
        )
        printed = paper().number(
            "E", dataset=tested.dataset, memory=tested.memory_size, method="sdaf"
        )
        assert printed is not None
        numbers = [
            f"{100 * row['centres/exemplars_by_exemplars_euclid']:.1f}",
            *(
                f"{with_stream - with_few:.1f}"
                for with_stream, with_few in zip(stream, exemplars, strict=True)
            ),
            f"{exemplars[1] - exemplars[0]:+.1f}",
            f"{100 * (by_id[tested.cell_id]['E'] - printed.mean):+.1f}",
        ]
        assert re.search(r"\| +" + r" \| +".join(map(re.escape, numbers)) + r" \|", REPRODUCTION)


def test_the_readings_quote_what_was_exported_and_told_while_training() -> None:
    told = " ".join(REPRODUCTION.split())
    lines = exported("readings-tenth").splitlines()
    assert "\n".join(lines) in REPRODUCTION
    by_id = exported_cells()

    def range_of(sweep: str, name: str, since: int = 25, **settings: object) -> tuple[float, float]:
        cells = [
            by_id[cell.cell_id]
            for cell in read_sweep(sweep).cells
            if cell.cell_id in by_id and cell.method == replace(SdafConfig(), **settings)
        ]
        cells = [c for c in cells if c[name]]  # one that took over its training told nothing
        assert len(cells) > 1
        points = [(b, v) for c in cells for b, v in zip(c["live_batches"], c[name], strict=True)]
        values = [value for batch, value in points if batch >= since]
        return min(values), max(values)

    for settings, joined in (({}, " and "), ({"head_norm": True}, " to ")):
        for name in ("live/self_supervised_loss", "live/projection_spread"):
            low, high = range_of("readings-tenth", name, **settings)
            assert f"{low:.2f}{joined}{high:.2f}" in told
    tenth, whole, norms = (
        range_of(sweep, "live/gamma", **settings)[0]
        for sweep, settings in (
            ("readings-tenth", {"head_norm": True}),
            ("classifiers-validation", {}),
            ("readings-tenth", {"weight_mean": "norms"}),
        )
    )
    assert f"never falls below {tenth:.3f} on a tenth, nor below {whole:.3f} on the whole" in told
    assert f"it stays above {norms:.3f}" in told
    low, high = range_of("readings-tenth", "live/gamma", since=4 * 90, temperature=0.003125)
    assert f"between {low:.2f} and {high:.2f} in the last stage" in told


def test_the_two_readings_on_the_whole_stream_are_quoted_as_exported() -> None:
    told, by_id = " ".join(REPRODUCTION.split()), exported_cells()
    assert exported("balance-full") in REPRODUCTION
    assert exported("cutoffs-full") in REPRODUCTION
    plain, summed, *_, by_softmax = (by_id[c.cell_id] for c in read_sweep("balance-full").cells)
    fall = f"{100 * (plain['E'] - summed['E']):.0f} points"
    assert told.count(fall) == 3
    assert (
        f"E is {100 * summed['E']:.1f} where averaged weights have {100 * plain['E']:.1f}" in told
    )
    live = zip(summed["live_batches"], summed["live/gamma"], strict=True)
    last = [gamma for batch, gamma in live if batch >= 4 * 900]
    assert f"In the last stage gamma lies between {min(last):.2f} and {max(last):.2f}" in told
    (usual,) = (
        by_id[c.cell_id]
        for c in read_sweep("classifiers-validation").cells
        if c.class_order == 0 and c.method == SdafConfig(classifier="softmax")
    )
    ends = f"E {100 * by_softmax['E']:.1f} instead of {100 * usual['E']:.1f}"
    assert f"F is {by_softmax['F']:.3f} instead of {usual['F']:.3f} and {ends}" in told
    by_others = [
        "{:.1f} (Euclid) and {:.1f} (Mahalanobis)".format(
            *(100 * row[f"centres/test_by_stream_{d}"] for d in ("euclid", "mahalanobis"))
        )
        for row in (summed, plain)
    ]
    assert f"it ends at {by_others[0]}" in told
    assert "averaged weights have {} and {}.".format(*re.findall(r"[\d.]+", by_others[1])) in told
    ends_by_cut = [by_id[c.cell_id]["E"] for c in read_sweep("cutoffs-full").cells]
    as_they_are, unit = ends_by_cut[:4], ends_by_cut[4:9]
    assert as_they_are == sorted(as_they_are)
    assert unit == sorted(unit)
    gains = [100 * (row[-1] - row[0]) for row in (as_they_are, unit)]
    assert "by {:.1f} points with features as they are and {:.1f} with".format(*gains) in told
    assert as_they_are[-1] < ends_by_cut[9]
    assert unit[-1] < ends_by_cut[10]


def test_what_is_said_in_short_is_said_at_length_too() -> None:
    _, short, long = re.split(
        r"^## In short$|^## The whole CIFAR-10 stream$", REPRODUCTION, flags=re.M
    )
    numbers = re.findall(r"\d+\.\d+(?: ± \d+\.\d+)?", short)
    assert numbers
    assert all(number in long for number in numbers)


def test_what_is_said_of_the_search_is_what_its_trials_say() -> None:
    folder = ROOT / "results" / "sdaf-lambda-tau-cifar10-tenth"
    rows = list(csv.DictReader((folder / "trials.csv").read_text(encoding="utf-8").splitlines()))
    states = Counter(row["state"] for row in rows)
    finished = [row for row in rows if row["state"] == "finished"]
    by_a = sorted(finished, key=lambda row: float(row["A"]))
    percent = [f"{100 * float(row['A']):.1f}" for row in (by_a[0], by_a[-1], finished[0])]
    best = [f"{float(by_a[-1][name]):.1f}" for name in ("lambda", "tau_w")]
    told = " ".join(REPRODUCTION.split())
    assert f"{len(rows)} trials by TPE" in told
    assert f"{states['finished']} finished, {states['pruned']} were pruned" in told
    assert f"stays between {percent[0]} and {percent[1]} %" in told
    assert f"(lambda 1.5, tau_w 0.5) has {percent[2]} %" in told
    assert f"lambda {best[0]} and tau_w {best[1]} ({percent[1]} %)" in told
    assert {row["trial"] for row in by_a[-3:]} == {
        row["trial"] for row in finished if float(row["lambda"]) > 8
    }
    assert {row["steps"] for row in rows if row["state"] == "pruned"} == {"3"}


def test_what_table1_is_said_to_take_is_what_its_plan_says(tmp_path: Path) -> None:
    told = run("oclgrid plan table1", tmp_path)
    (hours,) = re.findall(r"one core of an AMD EPYC would take (\S+) hours", told)
    assert f"{hours} hours of one\ncore" in README
    assert told.splitlines()[-1] in REPRODUCTION
    for name in ("cifar10", "cifar100", "miniimagenet"):
        (hours,) = re.findall(r"take (\S+) hours", run(f"oclgrid plan table1-{name}", tmp_path))
        assert f" {hours}" in REPRODUCTION


def test_the_chaos_shown_is_the_last_that_was_run() -> None:
    (shown,) = [text for language, text in blocks() if language == "text"]
    said = (ROOT / "results" / "chaos.txt").read_text(encoding="utf-8")
    assert said.endswith(shown)
    assert re.search(r"^20 rounds, \d+ kills, 0 lost, 0 doubled\n\Z", shown, flags=re.MULTILINE)
    kinds = Counter(re.findall(r"(\w+)(?: \([^)]*\))?[,;]", said))
    totals = re.findall(r"(\w+) (\d+)", shown.splitlines()[0])
    assert {kind: kinds[kind] for kind, _ in totals} == {kind: int(n) for kind, n in totals}
