"""What was exported to results/, and the pages that tell of it."""

import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
REPRODUCTION = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
READINGS = (ROOT / "docs" / "readings.md").read_text(encoding="utf-8")


def exported(sweep: str) -> str:
    """Return the table of a sweep from what was exported of it."""
    options = ["--from", "results/cells.parquet", "--no-seconds"]
    command = [sys.executable, "-m", "oclgrid.platform.cli", "table", sweep, *options]
    told = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    return told.stdout.split("\n\n")[0]


def exported_cells() -> dict[str, dict[str, Any]]:
    """Return everything that was exported, by cell id."""
    rows = pq.read_table(ROOT / "results" / "cells.parquet").to_pylist()
    return {row["cell_id"]: row for row in rows}


def interval(three: list[float]) -> tuple[float, float, float]:
    """Return the mean of three numbers and the ends of its 95 % interval."""
    half = 4.303 * stdev(three) / 3**0.5  # Student's t of 2 degrees of freedom, 0.975
    return mean(three), mean(three) - half, mean(three) + half
