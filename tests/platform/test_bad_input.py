"""Bad input: one line that says what and what to do, exit code 2, nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oclgrid.platform.cli import main
from oclgrid.search_spaces.sweep import presets
from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.outliers import OUTLIERS
from oclgrid.trainables.registry import all_methods

COMMANDS = ("run", "plan", "table", "compare", "report", "export", "tune", "ui", "data", "store",
            "list")  # fmt: skip
PROGRESS = {"asking the store what is finished ...", "checking the data ..."}
"""Lines of `run` that may come before the one that says what is wrong."""
CELLS = "cells: {dataset: digits, memory: 10, method: er}\n"


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in an empty folder that is also the home, and take back the signal handler."""
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OCLGRID_STORE", "OCLGRID_DATA"):
        monkeypatch.delenv(name, raising=False)
    yield
    signal.signal(signal.SIGTERM, handler)


def call(*arguments: str) -> int:
    try:
        return main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)


def listing() -> dict[str, bytes | None]:
    """Return every file below this folder with its content, and every folder."""
    return {str(p): p.read_bytes() if p.is_file() else None for p in Path().rglob("*")}


class Terminal:
    """What a call shows."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def refusal(self, *arguments: str) -> str:
        """Return the one line that a call is refused with; it must leave no other trace."""
        before = listing()
        code = call(*arguments)
        output, errors = self._capsys.readouterr()
        assert (code, output) == (2, ""), errors
        assert listing() == before
        assert errors.endswith("\n")
        *progress, line = errors.removesuffix("\n").split("\n")
        assert set(progress) <= (PROGRESS if arguments[:1] == ("run",) else set()), errors
        assert line.startswith("oclgrid")
        assert line.isprintable()
        assert len(line) < 500
        return line

    def success(self, *arguments: str) -> str:
        """Return what a call prints; it must leave no trace."""
        before = listing()
        code = call(*arguments)
        output, errors = self._capsys.readouterr()
        assert code == 0, errors
        assert listing() == before
        return output


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


# Words the command line does not know


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "oclgrid: the following arguments are required: COMMAND; see `oclgrid --help`"),
        (["pln"], "invalid choice: 'pln' (choose from"),
        (["plan"], "the following arguments are required: SWEEP; see `oclgrid plan --help`"),
        (["plan", "quickstart", "--stores"], "unrecognized arguments: --stores; see `oclgrid"),
        (["plan", "quickstart", "more"], "unrecognized arguments: more; see `oclgrid"),
        (["plan", "quickstart", "a\nb"], "unrecognized arguments: a"),
        (["plan", "quickstart", "--store"], "--store: expected one argument; see `oclgrid plan"),
        (["table", "quickstart", "--format", "xls"], "--format: invalid choice: 'xls' (choose"),
        (["list", "method"], "invalid choice: 'method' (choose from"),
        (["data", "--download"], "--download needs the name of a dataset"),
    ],
)
def test_an_unknown_word_is_refused(terminal: Terminal, arguments: list[str], said: str) -> None:
    assert said in terminal.refusal(*arguments)


# Sweeps


@pytest.mark.parametrize("command", ["run", "plan", "table"])
def test_an_unknown_preset_is_refused_with_the_nearest(terminal: Terminal, command: str) -> None:
    line = terminal.refusal(command, "quikstart")
    assert line == "oclgrid: unknown sweep 'quikstart'; did you mean 'quickstart'?"


@pytest.mark.parametrize("command", ["run", "plan", "table"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CELLS.replace("er}", "err}"), "unknown method 'err'; did you mean 'er'?"),
        (CELLS.replace("digits", "digit"), "unknown dataset 'digit'; did you mean 'digits'?"),
        (CELLS + "resource: {}", "unknown key of x.yaml 'resource'; did you mean 'resources'?"),
        (CELLS.replace("10", "ten"), "cells.memory must be a whole number, got 'ten'"),
        (CELLS.replace("10", "-1"), "must not be negative, got -1"),
        ("cells: [", "x.yaml is not valid YAML"),
        ("", "x.yaml: cells is missing; add it"),
    ],
)
def test_a_bad_sweep_is_refused(terminal: Terminal, command: str, text: str, said: str) -> None:
    Path("x.yaml").write_text("sweep: x\n" + text, encoding="utf-8")
    assert said in terminal.refusal(command, "x.yaml")


def test_a_missing_file_is_refused(terminal: Terminal) -> None:
    line = terminal.refusal("plan", "x.yaml")
    assert line == "oclgrid: cannot read x.yaml: No such file or directory; check the path"


def test_a_file_name_of_two_lines_is_refused_in_one(terminal: Terminal) -> None:
    assert "cannot read" in terminal.refusal("plan", "a\nb.yaml")


def test_resources_that_this_machine_lacks_are_refused(terminal: Terminal) -> None:
    text = f"sweep: x\n{CELLS}resources: {{cpus: 1024}}"
    Path("x.yaml").write_text(text, encoding="utf-8")
    assert "resources.cpus asks for 1024" in terminal.refusal("run", "x.yaml")


def test_a_stream_too_short_for_a_batch_is_refused(terminal: Terminal) -> None:
    text = "sweep: x\ncells: {dataset: digits, memory: 1, method: er, stream_fraction: 0.001}"
    Path("x.yaml").write_text(text, encoding="utf-8")
    line = terminal.refusal("run", "x.yaml")
    assert "stream_fraction 0.001" in line
    assert "raise it" in line


@pytest.mark.parametrize("slots", ["0", "-1", "4097", "two", "1.5"])
def test_a_bad_number_of_slots_is_refused(terminal: Terminal, slots: str) -> None:
    line = terminal.refusal("run", "quickstart", "--slots", slots)
    assert "--slots" in line
    assert slots in line


# Data


def test_a_missing_dataset_is_refused_with_the_command_that_gets_it(terminal: Terminal) -> None:
    Path("empty").mkdir()
    line = terminal.refusal("run", "cifar10-tenth", "--data", "empty")
    assert "dataset 'cifar10' is not complete below" in line
    assert "`oclgrid data cifar10 --download`" in line
    assert "--data" in line


def test_an_unknown_dataset_is_refused_with_the_nearest(terminal: Terminal) -> None:
    line = terminal.refusal("data", "cifar11")
    assert line == "oclgrid: unknown dataset 'cifar11'; did you mean 'cifar10'?"


def test_asking_for_a_missing_dataset_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("empty").mkdir()
    assert call("data", "cifar10", "--data", "empty") == 2
    output, errors = capsys.readouterr()
    assert "`oclgrid data cifar10 --download`" in output + errors
    assert list(Path().rglob("*")) == [Path("empty")]


# Stores


@pytest.mark.parametrize(
    ("store", "rule"),
    [
        ("file", "cannot look into the store"),
        ("file/below", "cannot write to the store folder"),
        ("/proc/nowhere", "cannot write to the store folder"),
        ("n" * 300, "cannot look into the store"),
    ],
)
def test_a_store_that_cannot_be_written_is_refused(
    terminal: Terminal, store: str, rule: str
) -> None:
    Path("file").write_text("mine", encoding="utf-8")
    line = terminal.refusal("run", "quickstart", "--store", store)
    assert f"{rule} {store[:20]}" in line
    assert "choose another with --store" in line


@pytest.mark.parametrize("command", ["run", "plan", "table", "ui"])
@pytest.mark.parametrize("store", ["s3://bucket", "sqlite:///x.db", "file:///x", "HTTP://host"])
def test_a_store_of_another_kind_is_refused(terminal: Terminal, command: str, store: str) -> None:
    arguments = [command] if command == "ui" else [command, "quickstart"]
    line = terminal.refusal(*arguments, "--store", store)
    assert (
        f"--store must be a folder or the http(s) address of an MLflow server, got {store!r}"
        in line
    )


@pytest.mark.parametrize("command", ["plan", "table"])
def test_looking_at_a_store_whose_name_is_too_long_is_refused(
    terminal: Terminal, command: str
) -> None:
    assert "--store" in terminal.refusal(command, "quickstart", "--store", "n" * 300)


def test_a_server_address_that_is_none_is_refused(terminal: Terminal) -> None:
    assert "--store" in terminal.refusal("plan", "quickstart", "--store", "http://[")


def test_a_store_that_is_no_database_is_refused(terminal: Terminal) -> None:
    Path("store").mkdir()
    Path("store/mlflow.db").write_text("not a database " * 100, encoding="utf-8")
    line = terminal.refusal("plan", "quickstart", "--store", "store")
    assert "cannot open the store" in line
    assert "--store" in line


# The page


def test_there_is_no_page_without_a_store(terminal: Terminal) -> None:
    line = terminal.refusal("ui")
    assert line == "oclgrid: there is no store in oclgrid-store; `oclgrid run` makes one"


@pytest.mark.parametrize("port", ["0", "-1", "65536", "http", "80.5"])
def test_a_bad_port_is_refused(terminal: Terminal, port: str) -> None:
    line = terminal.refusal("ui", "--port", port)
    assert "--port" in line
    assert port in line


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_in_use_is_refused(terminal: Terminal, host: str) -> None:
    Path("store").mkdir()
    Path("store/mlflow.db").touch()
    with socket.socket() as other:
        other.bind((host, 0))
        other.listen()
        port = other.getsockname()[1]
        line = terminal.refusal("ui", "--store", "store", "--port", str(port))
    assert f"port {port} is taken" in line
    assert "choose another with --port" in line


# What is not bad


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_shows_an_example(terminal: Terminal, command: str) -> None:
    assert f"example: oclgrid {command}" in terminal.success(command, "--help")


def test_help_names_every_command(terminal: Terminal) -> None:
    text = terminal.success("--help")
    assert all(f"\n    {command} " in text for command in COMMANDS)


def test_list_names_everything_there_is(terminal: Terminal) -> None:
    text = terminal.success("list")
    for name in (*presets(), *DATASETS, *OUTLIERS, *all_methods()):
        assert f"\n  {name} " in text


@pytest.mark.parametrize(
    ("kind", "names"),
    [("methods", list(all_methods())), ("datasets", [*DATASETS, *OUTLIERS]), ("sweeps", presets())],
)
def test_list_of_one_kind_has_a_line_for_each(
    terminal: Terminal, kind: str, names: list[str]
) -> None:
    lines = terminal.success("list", kind).splitlines()
    if kind == "methods":
        assert lines.pop(0).split() == ["views", "x", "updates", "classifier", "keeps", "paper"]
    assert [line.split()[0] for line in lines] == names
    assert all(len(line.split()) > 3 for line in lines)


def test_the_embedded_dataset_is_always_complete(terminal: Terminal) -> None:
    assert terminal.success("data", "digits").split()[:2] == ["digits", "complete"]


def test_a_plan_of_table_1_needs_no_data(terminal: Terminal) -> None:
    lines = terminal.success("plan", "table1", "--data", "nowhere").splitlines()
    assert lines[0] == "279 cells: 279 missing"


def test_a_plan_needs_no_store_and_makes_none(terminal: Terminal) -> None:
    lines = terminal.success("plan", "quickstart", "--store", "store").splitlines()
    assert lines[0] == "6 cells: 6 missing"
    assert [line.split()[0] for line in lines[1:7]] == ["missing"] * 6


def test_a_table_needs_no_store_and_makes_none(terminal: Terminal) -> None:
    header, *lines = terminal.success("table", "quickstart", "--format", "csv").splitlines()
    assert header.startswith("dataset,memory,method,n,E_mean,")
    assert [line.split(",")[:4] for line in lines] == [
        ["digits", "100", method, "0"] for method in ("er", "scr", "sdaf")
    ]


@pytest.mark.slow
def test_looking_at_a_store_leaves_the_home_folder_alone() -> None:
    hidden = ("MLFLOW", "DO_NOT_TRACK", "PYTEST", "CI", "GITHUB")  # mlflow behaves when tested
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    Path("store").mkdir()
    Path("store/mlflow.db").write_text("not a database " * 100, encoding="utf-8")
    before = listing()
    subprocess.run(
        [sys.executable, "-m", "oclgrid.platform.cli", "plan", "quickstart", "--store", "store"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert listing() == before
