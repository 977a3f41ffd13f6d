"""Measure speed as ratios within one run: `python -m benchmarks [NAME ...]`."""

import argparse
import json
import platform
import sys
from pathlib import Path

import torch

from benchmarks import driver, methods, overhead, planning, reading, step
from benchmarks.measure import Entry

SUITES = {
    "step": step.measure,
    "methods": methods.measure,
    "overhead": overhead.measure,
    "reading": reading.measure,
    "planning": planning.measure,
    "driver": driver.measure,
}
LATEST = Path(__file__).parent / "latest.json"


def main() -> int:
    """Run the chosen suites, print a table, write the entries as JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SUITES)}")
    names = parser.parse_args().names or list(SUITES)
    if unknown := set(names) - set(SUITES):
        print(
            f"benchmarks: unknown {', '.join(unknown)}; known: {', '.join(SUITES)}", file=sys.stderr
        )
        return 2
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}")
    entries: list[Entry] = []
    for name in names:
        print(f"measuring {name} ...", file=sys.stderr)
        entries += SUITES[name]()
    width = max(len(e.name) for e in entries)
    print(f"{'name':{width}}  ratio  spread  against")
    for e in entries:
        more = "".join(f"; {k} {v:g}" for k, v in e.figures.items())
        print(f"{e.name:{width}}  {e.ratio:5.2f}  {e.spread:6.2f}  {e.against}{more}")
    LATEST.write_text(json.dumps([e.plain() for e in entries], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
