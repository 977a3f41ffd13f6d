"""One round of `make chaos`: kills at random moments on a cluster of several nodes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_a_round_of_chaos_changes_nothing() -> None:
    command = [sys.executable, "-m", "tests.chaos", "1", "--seed", "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"1 rounds, [1-9] kills, 0 lost, 0 doubled", last), done.stdout
