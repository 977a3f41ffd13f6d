"""The command line: `oclgrid --help` is the map."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from oclgrid.platform.environment import prepare

DONE, SOME_FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class _Parser(argparse.ArgumentParser):
    """Errors are one line on standard error."""

    def error(self, message: str) -> NoReturn:
        message = " ".join(message.split())
        self.exit(BAD_INPUT, f"{self.prog}: {message}; see `{self.prog} --help`\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    prepare()
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    from oclgrid.trainables.schema import SpecError

    try:
        code: int = options.command(options)
        sys.stdout.flush()
        return code
    except SpecError as error:
        if options.debug:
            raise
        print(f"oclgrid: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(
            "oclgrid: interrupted; the same command goes on where this one stopped", file=sys.stderr
        )
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        if options.debug:
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"oclgrid: unexpected {reason[:300]}; run again with --debug", file=sys.stderr)
        return SOME_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="oclgrid",
        description="Experiments in online continual learning that survive crashes.",
        epilog="SWEEP is a preset's name (see `oclgrid list sweeps`) or a YAML file.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    def add(
        name: str, run: Callable[[Any], int], about: str, *, example: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=about, description=about, epilog=f"example: oclgrid {example}"
        )
        command.set_defaults(command=run)
        command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        return command

    def add_store(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--store",
            metavar="WHERE",
            help="folder, or http(s) address of an MLflow server "
            "(default: $OCLGRID_STORE or ./oclgrid-store)",
        )

    def add_data(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--data",
            metavar="FOLDER",
            help="where datasets are (default: $OCLGRID_DATA or ~/.cache/oclgrid)",
        )

    def add_table(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--format", choices=["markdown", "csv"], default="markdown", help="of the table"
        )
        command.add_argument(
            "--no-seconds", action="store_true", help="leave out what a clock says"
        )

    run = add("run", _run, "run every cell that has no result yet, then print the table",
              example="run quickstart")  # fmt: skip
    run.add_argument("sweep", metavar="SWEEP")
    run.add_argument("--slots", type=int, help="CPUs to use on this machine (default: all)")
    run.add_argument("--address", help="of a running Ray cluster (default: Ray on this machine)")
    add_store(run)
    add_data(run)
    add_table(run)

    plan = add("plan", _plan, "say which cells are finished or missing, and what they would cost",
               example="plan quickstart")  # fmt: skip
    plan.add_argument("sweep", metavar="SWEEP")
    add_store(plan)

    table = add("table", _table, "print the results: mean and standard deviation over class orders",
                example="table quickstart --format csv")  # fmt: skip
    table.add_argument("sweep", metavar="SWEEP")
    add_store(table)
    add_table(table)

    ui = add("ui", _ui, "open the MLflow UI on the store", example="ui --port 5000")
    ui.add_argument("--port", type=int, default=5000, help="on 127.0.0.1 (default: 5000)")
    add_store(ui)

    data = add("data", _data, "say which datasets are here, and how to get one that is not",
               example="data cifar10 --download")  # fmt: skip
    data.add_argument("dataset", metavar="DATASET", nargs="?")
    data.add_argument("--download", action="store_true", help="fetch a missing dataset")
    add_data(data)

    listing = add("list", _list, "list methods, datasets or sweeps", example="list methods")
    listing.add_argument("what", choices=["methods", "datasets", "sweeps"], nargs="?")
    return parser


def _run(options: Any) -> int:
    from oclgrid.platform.display import Display
    from oclgrid.platform.location import find_store
    from oclgrid.platform.run import Surroundings, run_sweep
    from oclgrid.search_spaces.sweep import read_sweep
    from oclgrid.trainables.datasets import data_root
    from oclgrid.trainables.schema import SpecError

    sweep = read_sweep(options.sweep)
    if options.slots is not None and not 1 <= options.slots <= 4096:
        raise SpecError(f"--slots must lie in [1, 4096], got {options.slots}")
    place = Surroundings(
        location=find_store(options.store),
        data=data_root(options.data).resolve(),
        address=options.address,
        slots=options.slots,
    )
    display = Display()
    outcome = run_sweep(sweep, place, display)
    _print_rows(outcome.rows, options)
    for title, reason in outcome.failed.items():
        print(f"oclgrid: {title} failed: {reason}", file=sys.stderr)
    again = f"oclgrid run {options.sweep}"
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
        return SOME_FAILED
    display.say("compare the runs with `oclgrid ui`")
    return DONE


def _plan(options: Any) -> int:
    from oclgrid.platform.display import clock
    from oclgrid.platform.location import find_store
    from oclgrid.platform.plan import make_plan
    from oclgrid.search_spaces.sweep import read_sweep

    sweep = read_sweep(options.sweep)
    plan = make_plan(sweep, find_store(options.store))
    print(plan.told)
    for spec in plan.todo:
        run = plan.found.get(spec.cell_id)
        note = f" after stage {run.stage}" if run and run.stage else ""
        note += f": {run.error}" if run and run.error else ""
        print(f"  {plan.state(spec):9} {spec.cell_id}  {spec.title}{note}")
    seconds, unknown = plan.seconds_left()
    if seconds:
        print(f"about {clock(seconds)} of one core, by stages measured in this sweep")
    if unknown:
        print(f"no measured stage yet to estimate {unknown} cells by")
    return DONE


def _table(options: Any) -> int:
    from oclgrid.platform import table
    from oclgrid.platform.location import find_store
    from oclgrid.platform.plan import make_plan
    from oclgrid.search_spaces.sweep import read_sweep

    sweep = read_sweep(options.sweep)
    plan = make_plan(sweep, find_store(options.store))
    _print_rows(table.rows(sweep.cells, plan.found), options)
    if plan.todo:
        print(
            f"oclgrid: {len(plan.todo)} of {len(sweep.cells)} cells are not finished; "
            f"`oclgrid run {options.sweep}` runs them",
            file=sys.stderr,
        )
    return DONE


def _print_rows(rows: Any, options: Any) -> None:
    from oclgrid.platform import table

    write = table.to_csv if options.format == "csv" else table.to_markdown
    print(write(rows, seconds=not options.no_seconds), end="")


def _ui(options: Any) -> int:
    from oclgrid.platform.location import find_store
    from oclgrid.trainables.schema import SpecError

    location = find_store(options.store)
    if location.folder is None:
        print(f"the store has its own server: {location.reading_uri}")
        return DONE
    if not 1 <= options.port <= 65535:
        raise SpecError(f"--port must lie in [1, 65535], got {options.port}")
    if not location.exists:
        raise SpecError(f"there is no store in {location.folder}; `oclgrid run` makes one")
    with location.serving(port=options.port) as server:
        assert server is not None
        print("starting the MLflow UI ...", file=sys.stderr)
        server.wait()
        print(f"MLflow UI: {server.uri} (Ctrl-C to stop)", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
    return DONE


def _data(options: Any) -> int:
    from oclgrid.trainables.datasets import DATASETS, data_root, dataset, load
    from oclgrid.trainables.schema import SpecError

    root = data_root(options.data)
    chosen = [dataset(options.dataset)] if options.dataset else list(DATASETS.values())
    if options.download and not options.dataset:
        raise SpecError("--download needs the name of a dataset")
    if not options.dataset:
        print(f"data folder: {root}")
    for info in chosen:
        try:
            load(info, root, download=options.download)
            state = "complete"
        except SpecError as error:
            if options.dataset:
                raise
            state = str(error)
        print(f"{info.name:10} {state}")
    return DONE


def _list(options: Any) -> int:
    from oclgrid.search_spaces.sweep import presets, read_sweep
    from oclgrid.trainables.datasets import DATASETS
    from oclgrid.trainables.registry import all_methods

    everything = {
        "methods": _method_lines(all_methods()),
        "datasets": [f"{d.name:20}{d.about}" for d in DATASETS.values()],
        "sweeps": [f"{n:20}{read_sweep(n).about}" for n in presets()],
    }
    for kind, lines in everything.items():
        if options.what is None:
            print(f"{kind}:")
        if options.what in (None, kind):
            print(*(f"  {line}" for line in lines), sep="\n")
    return DONE


def _method_lines(methods: Any) -> list[str]:
    """Return a line for each method: what a step costs, how it predicts, what it keeps."""
    lines = [f"{'':15}{'views x updates':17}{'classifier':17}{'keeps':44}paper"]
    for name, entry in methods.items():
        config, learner = entry.config(), entry.learner
        cost = f"{learner.views_per_image} x {config.updates_per_batch}"
        lines.append(f"{name:15}{cost:17}{config.classifier:17}{learner.stores:44}{learner.about}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
