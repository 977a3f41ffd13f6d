"""What docs/cluster.md says to type can be typed: commands parse, files are there."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from ray.scripts.scripts import cli as ray_command

from oclgrid.platform.cell_log import LIVE_SECONDS
from oclgrid.platform.claims import BEAT_SECONDS
from oclgrid.platform.cli import _parser
from oclgrid.platform.gpu_share import MOST_TRIALS
from oclgrid.platform.launch import LOST_WORKERS
from oclgrid.platform.reading import NEWEST
from oclgrid.search_spaces.named import kind_of

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
OTHERS = {"docker", "git", "install", "kubectl", "make", "openssl", "ssh", "sudo"}
"""Programs whose options are not checked here, only the files they are given."""


def commands() -> list[list[str]]:
    """Return every command of the page as its words, from its blocks and its tables."""
    blocks = re.findall(r"^```\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0] for text in blocks for line in text.splitlines()]
    lines += re.findall(r"`((?:oclgrid|ray|kubectl) [^`]+)`", TEXT)
    return [shlex.split(line) for line in lines]


COMMANDS = commands()


@pytest.mark.parametrize("words", [w for w in COMMANDS if w[0] == "oclgrid"], ids=" ".join)
def test_our_commands_are_understood(words: list[str]) -> None:
    if "NAME" in words:  # as a pattern
        words = [*words, "--address", "http://127.0.0.1:8265"]
    options = _parser().parse_args(words[1:])
    for name in ("work", "sweep"):
        if hasattr(options, name):
            assert kind_of(getattr(options, name)) == "sweep"


@pytest.mark.parametrize("words", [w for w in COMMANDS if w[0] == "ray"], ids=" ".join)
def test_rays_commands_are_understood(words: list[str]) -> None:
    if len(words) == 2:  # named in a sentence
        assert words[1] in ray_command.commands
        return
    command = ray_command.commands[words[1]]
    with command.make_context(words[1], words[2:]) as given:
        file = given.params["cluster_config_file"]
    assert (ROOT / file).is_file()


def test_no_other_programs_are_called_and_files_they_are_given_exist() -> None:
    assert {words[0] for words in COMMANDS} <= OTHERS | {"oclgrid", "ray"}
    for words in COMMANDS:
        for option, file in pairwise(words):
            if option == "-f":
                assert (ROOT / file).is_file(), file


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", TEXT):
        assert (ROOT / "docs" / link).exists(), link


def test_secrets_are_made_as_the_manifests_say() -> None:
    manifest = (ROOT / "kubernetes" / "store.yaml").read_text(encoding="utf-8")
    told = [line[4:] for line in manifest.splitlines() if "create secret" in line]
    assert len(told) == 3
    for line in told:
        assert line in TEXT


def test_figures_that_stand_in_the_code_are_told_as_they_are() -> None:
    words = {10: "ten"}
    assert f"happen {words[LOST_WORKERS]} times to one trial" in " ".join(TEXT.split())
    assert f"1 request in {LIVE_SECONDS:g} s" in TEXT
    assert f"from {LIVE_SECONDS:g} to 60" in TEXT
    assert f"3 requests in {BEAT_SECONDS:g} s" in TEXT
    assert f"for at most {MOST_TRIALS} trials" in TEXT
    assert f"the newest {NEWEST} finished cells" in " ".join(TEXT.split())


def test_the_plan_for_a_thousand_follows_from_what_was_measured() -> None:
    row = r"^\| ([\d,]+)[^|]*\| (\d+) \| (\d+) \| (\d+) \| (\d+) MB/s"
    rows = re.findall(row, TEXT, re.MULTILINE)
    assert len(rows) == 3
    (size,) = re.findall(r"^\| so artifacts.* \| (\d+), \d+ MB", TEXT, re.MULTILINE)
    for seconds, requests, live, values, megabytes in rows:
        cells = 1000 / int(seconds.replace(",", ""))
        assert int(live) == 1000 / LIVE_SECONDS
        assert abs(int(requests) - (52 * cells + int(live))) < 1
        assert abs(int(values) - (3 * int(live) + 40 * cells)) < 1
        assert abs(int(megabytes) - int(size) * cells) < 1
