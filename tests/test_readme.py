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
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.exported import README, REPRODUCTION, ROOT

pytestmark = pytest.mark.slow

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
    command = [sys.executable, "-m", "oclgrid.platform.cli", "ui", "my-first.yaml"]
    with (
        subprocess.Popen(
            [*command, "--port", str(port)],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as ui,
        ExitStack() as at_last,
    ):
        at_last.callback(ui.kill)  # which would be waited for, were it not stopped
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


def test_what_was_exported_need_not_be_trained_again(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results", tmp_path / "results")
    run("oclgrid store copy results/cells.parquet oclgrid-store", tmp_path)
    assert "3 cells: 3 finished" in run("oclgrid plan cifar100-full", tmp_path)


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
