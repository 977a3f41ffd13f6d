"""What each command does: takes the parsed options, prints, returns the exit code.

Slow imports stand inside the functions, so that help and refusals come at once.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oclgrid.platform.session import Surroundings
    from oclgrid.search_spaces.sweep import Sweep

DONE, SOME_FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def run(options: Any) -> int:
    """Run every cell that has no result yet, then print the table."""
    from oclgrid.platform.display import Display
    from oclgrid.platform.run import run_sweep
    from oclgrid.search_spaces.sweep import read_sweep

    check_output(options)
    sweep = budgeted(read_sweep(options.sweep), options)
    place = surroundings_of(options)
    display = Display()
    outcome = run_sweep(sweep, place, display)
    print_rows(outcome.rows, options)
    for title, reason in outcome.failed.items():
        print(f"oclgrid: {title} failed: {reason}", file=sys.stderr)
    for title, reason in outcome.unanalysed.items():
        print(f"oclgrid: {title} is finished but not analysed: {reason}", file=sys.stderr)
    again = f"oclgrid run {options.sweep}"
    if outcome.interrupted and outcome.stopped:
        print(
            f"oclgrid: {outcome.stopped}, {outcome.interrupted} cells are to go; nothing is lost, "
            f"go on with a higher one: `{again} --budget NAME=AMOUNT`",
            file=sys.stderr,
        )
        return INTERRUPTED
    if outcome.interrupted:
        print(
            f"oclgrid: interrupted with {outcome.interrupted} cells to go; nothing is lost, "
            f"go on with `{again}`",
            file=sys.stderr,
        )
        return INTERRUPTED
    if outcome.failed:
        print(f"oclgrid: {len(outcome.failed)} cells failed; their runs in `oclgrid ui` hold the "
              f"traceback (error.txt); after a remedy, `{again}`", file=sys.stderr)  # fmt: skip
    if outcome.failed or outcome.unanalysed:
        return SOME_FAILED
    display.say(f"compare the runs with `oclgrid ui {options.sweep}`")
    return DONE


def budgeted(sweep: "Sweep", options: Any) -> "Sweep":
    """Return the sweep with the budget and the price of the command line."""
    from oclgrid.search_spaces.budget import amended

    price = amended(sweep.price, options.price, option="--price")
    budget = amended(sweep.budget, options.budget, option="--budget")
    budget.check(price)
    return replace(sweep, budget=budget, price=price)


def surroundings_of(options: Any) -> "Surroundings":
    """Return where and with what the options say that cells run."""
    from oclgrid.platform.location import find_store
    from oclgrid.platform.session import Surroundings
    from oclgrid.trainables.datasets import data_root
    from oclgrid.trainables.schema import SpecError

    if options.slots is not None and not 1 <= options.slots <= 4096:
        raise SpecError(f"--slots must lie in [1, 4096], got {options.slots}")
    return Surroundings(
        location=find_store(options.store),
        data=data_root(options.data).resolve(),
        address=options.address,
        slots=options.slots,
    )


def sweep_of(options: Any) -> "Sweep":
    """Return the sweep that was asked for, on the data below the folder that was."""
    from oclgrid.search_spaces.sweep import read_sweep
    from oclgrid.trainables.datasets import data_root

    return read_sweep(options.sweep, data_root(options.data))


def tell_undecoded(sweep: "Sweep") -> None:
    """Say of which datasets nothing can be found, because they are not decoded here."""
    from oclgrid.platform.data import undecoded_lines

    for line in undecoded_lines(sweep.cells):
        print(f"oclgrid: {line}", file=sys.stderr)


def plan(options: Any) -> int:
    """Print which cells are finished or missing, and what they would cost."""
    from oclgrid.platform.estimate import cost_lines
    from oclgrid.platform.location import find_store
    from oclgrid.platform.plan import make_plan
    from oclgrid.platform.results import ANALYSIS_ERROR

    sweep = budgeted(sweep_of(options), options)
    plan = make_plan(sweep, find_store(options.store))
    tell_undecoded(sweep)
    print(plan.told)
    for spec in plan.todo + plan.to_analyse:
        run = plan.found.get(spec.cell_id)
        note = f" after stage {run.stage}" if run and run.stage else ""
        error = run and (run.error or run.tags.get(ANALYSIS_ERROR, ""))
        note += f": {error}" if error else ""
        print(f"  {plan.state(spec):10} {spec.cell_id}  {spec.title}{note}")
    for line in cost_lines(sweep, plan.estimate, plan.measured_share):
        print(line)
    return DONE


def check_output(options: Any) -> None:
    """Refuse an output that could not be written, before anything else is done."""
    from oclgrid.trainables.schema import SpecError

    if options.output is None and options.format == "parquet":
        raise SpecError("--format parquet needs a file to write to; name it with --output")
    if options.output is not None and not Path(options.output).absolute().parent.is_dir():
        raise SpecError(f"--output {options.output}: there is no such folder; make it first")


def print_rows(table: Any, options: Any) -> None:
    """Print a table, or write it to a file, in the format asked for."""
    from oclgrid.platform import table_formats

    content = getattr(table_formats, f"to_{options.format}")(table, seconds=not options.no_seconds)
    if options.output is None:
        print(content, end="")
        return
    write_whole(Path(options.output), content if isinstance(content, bytes) else content.encode())
    print(f"the table is in {options.output}", file=sys.stderr)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or as it was."""
    from oclgrid.trainables.schema import SpecError

    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise SpecError(f"cannot write {path} ({error.strerror}); name another file") from error


def data(options: Any) -> int:
    """Print which datasets are here, and how to get one that is not."""
    from oclgrid.platform.data import data_lines, telling
    from oclgrid.trainables.datasets import data_root

    root = data_root(options.data)
    with telling(lambda line: print(line, file=sys.stderr)):
        for line in data_lines(options.dataset, root, download=options.download):
            print(line, flush=True)
    return DONE


def show(options: Any) -> int:
    """Print methods, datasets, sweeps or searches."""
    from oclgrid.search_spaces.search import read_search, searches
    from oclgrid.search_spaces.sweep import presets, read_sweep
    from oclgrid.trainables.datasets import DATASETS
    from oclgrid.trainables.outliers import OUTLIERS
    from oclgrid.trainables.registry import all_methods

    outliers = [f"{o.name:20}outliers: {o.about}" for o in OUTLIERS.values()]
    everything = {
        "methods": _method_lines(all_methods()),
        "datasets": [*(f"{d.name:20}{d.about}" for d in DATASETS.values()), *outliers],
        "sweeps": _named({n: read_sweep(n).about for n in presets()}),
        "searches": _named({n: read_search(n).about for n in searches()}),
    }
    for kind, lines in everything.items():
        if options.what is None:
            print(f"{kind}:")
        if options.what in (None, kind):
            print(*(f"  {line}" for line in lines), sep="\n")
    return DONE


def _named(about: dict[str, str]) -> list[str]:
    """Return a line for each name, with what it is about in a column of its own."""
    width = max(map(len, about)) + 2
    return [f"{name:{width}}{what}" for name, what in about.items()]


def _method_lines(methods: Any) -> list[str]:
    """Return a line for each method: what a step costs, how it predicts, what it keeps."""
    lines = [f"{'':15}{'views x updates':17}{'classifier':17}{'keeps':44}paper"]
    for name, entry in methods.items():
        config = entry.config()
        cost = f"{config.views_per_image} x {config.updates_per_batch}"
        lines.append(f"{name:15}{cost:17}{config.classifier:17}{config.stores:44}{config.about}")
    return lines
