"""Measure speed as ratios within one run: `python -m benchmarks [NAME ...]`."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks import (
    compiled,
    driver,
    evaluation,
    files,
    growth,
    gss,
    layers,
    memory,
    methods,
    planning,
    reading,
    step,
    sweep,
    views,
)
from benchmarks.measure import Entry, table
from oclgrid.platform.environment import prepare
from oclgrid.platform.provenance import hardware, provenance

SUITES = {
    "step": step.measure,
    "layers": layers.measure,
    "methods": methods.measure,
    "gss": gss.measure,
    "compiled": compiled.measure,
    "views": views.measure,
    "evaluation": evaluation.measure,
    "files": files.measure,
    "memory": memory.measure,
    "growth": growth.measure,
    "sweep": sweep.measure,
    "driver": driver.measure,
    "reading": reading.measure,
    "planning": planning.measure,
}
LATEST = Path(__file__).parent / "latest.json"


def main() -> int:
    """Run the chosen suites, print a table, write machine, versions and entries as JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--json", type=Path, default=LATEST, help="where to write the result")
    options = parser.parse_args()
    if unknown := set(options.names) - set(SUITES):
        print(
            f"benchmarks: unknown {', '.join(unknown)}; known: {', '.join(SUITES)}", file=sys.stderr
        )
        return 2
    prepare()
    entries: list[Entry] = []
    machine = hardware() | provenance()
    for name in options.names or SUITES:
        print(f"measuring {name} ...", file=sys.stderr)
        entries += SUITES[name]()
        result = {"machine": machine, "entries": [e.plain() for e in entries]}
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
