"""A method in an installed package is listed, swept and filed like a built-in one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "finetune"
SWEEP = """
sweep: extension
cells: {dataset: digits, memory: 0, orders: 1, method: finetune, stream_fraction: 0.08}
overrides:
  finetune: {learning_rate: 0.05}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the example beside the running environment, without touching it."""
    target = tmp_path_factory.mktemp("packages")
    source = tmp_path_factory.mktemp("source")
    for file in EXAMPLE.iterdir():
        if file.is_file():
            (source / file.name).write_bytes(file.read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True)
    return {**os.environ, "PYTHONPATH": str(target)}


def oclgrid(*arguments: str, environment: dict[str, str], folder: Path) -> str:
    command = [sys.executable, "-m", "oclgrid.platform.cli", *arguments]
    return subprocess.check_output(command, env=environment, cwd=folder, text=True)


def test_it_is_listed(environment: dict[str, str], tmp_path: Path) -> None:
    text = oclgrid("list", "methods", environment=environment, folder=tmp_path)
    assert "finetune" in text
    assert "sdaf" in text


def test_it_is_swept_with_its_own_options(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "extension.yaml").write_text(SWEEP)
    text = oclgrid(
        "run", "extension.yaml", "--format", "csv", environment=environment, folder=tmp_path
    )
    _, row = text.splitlines()
    assert row.startswith("digits,0,finetune,1,")


def test_a_package_that_cannot_be_loaded_is_named(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "oclgrid_finetune.py").write_text("raise RuntimeError('broken')")
    path = f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"
    command = [sys.executable, "-m", "oclgrid.platform.cli", "list", "methods"]
    result = subprocess.run(
        command, env={**environment, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "'finetune' of the package oclgrid-finetune cannot be loaded" in result.stderr
    assert result.stderr.count("\n") == 1
