"""The command line: `oclgrid --help` is the map."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from oclgrid.platform import cluster_commands as cluster
from oclgrid.platform import commands as do
from oclgrid.platform import job_commands as jobs
from oclgrid.platform import result_commands as results
from oclgrid.platform import store_command, ui_command
from oclgrid.platform import tune_command as searching
from oclgrid.platform.commands import BAD_INPUT, DONE, INTERRUPTED, SOME_FAILED
from oclgrid.platform.environment import prepare
from oclgrid.platform.results import NUMBERS, RULE

_SLOTS = "CPUs to use on this machine (default: all that memory allows)"


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

    def add_source(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--from", dest="source", metavar="FILE", help="cells.parquet of `oclgrid export`"
        )
        add_store(command)
        add_data(command)

    def add_data(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--data",
            metavar="FOLDER",
            help="where datasets are (default: $OCLGRID_DATA or ~/.cache/oclgrid)",
        )

    def add_table(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--format",
            choices=["markdown", "latex", "csv", "parquet"],
            default="markdown",
            help="of the table",
        )
        command.add_argument("--output", metavar="FILE", help="write the table there")
        command.add_argument(
            "--no-seconds", action="store_true", help="leave out what a clock says"
        )

    def add_budget(command: argparse.ArgumentParser) -> None:
        for option, names in (("budget", "hours, core_hours, gpu_hours or money"),
                              ("price", "core_hour or gpu_hour")):  # fmt: skip
            command.add_argument(
                f"--{option}", action="append", default=[], metavar="NAME=AMOUNT",
                help=f"{names}; may be given again; goes before the sweep's own",
            )  # fmt: skip

    run = add("run", do.run, "run every cell that has no result yet, then print the table",
              example="run quickstart")  # fmt: skip
    run.add_argument("sweep", metavar="SWEEP")
    run.add_argument("--slots", type=int, help=_SLOTS)
    run.add_argument("--address", help="of a running Ray cluster (default: Ray on this machine)")
    add_budget(run)
    add_store(run)
    add_data(run)
    add_table(run)

    plan = add("plan", do.plan, "say which cells are finished or missing, and what they would cost",
               example="plan quickstart")  # fmt: skip
    plan.add_argument("sweep", metavar="SWEEP")
    add_budget(plan)
    add_store(plan)
    add_data(plan)

    table = add("table", results.table, "print the results: mean and deviation over class orders",
                example="table quickstart --format csv")  # fmt: skip
    table.description = f"{table.description}. {RULE}"
    table.add_argument("sweep", metavar="SWEEP")
    add_source(table)
    add_table(table)

    compare = add("compare", results.compare, "compare two methods, paired over class orders",
                  example="compare quickstart sdaf er --number F")  # fmt: skip
    compare.add_argument("sweep", metavar="SWEEP")
    for name, dest in (("A", "one"), ("B", "two")):
        compare.add_argument(dest, metavar=name, help="method, method@memory or group id")
    compare.add_argument("--number", choices=NUMBERS, default="E", help="default: E")
    add_source(compare)

    report = add("report", results.report, "write tables and figures as one HTML file",
                 example="report quickstart --output quickstart.html")  # fmt: skip
    report.add_argument("sweep", metavar="SWEEP", help="or a SEARCH")
    report.add_argument("--output", metavar="FILE", help="default: ./<name>.html")
    report.add_argument("--method", help="of a search, as given to `oclgrid tune`")
    add_source(report)

    export = add("export", results.export, "merge finished cells into results/cells.parquet",
                 example="export quickstart --to results")  # fmt: skip
    export.add_argument("sweep", metavar="SWEEP", help="or a SEARCH: trials and pictures")
    export.add_argument("--method", help="of a search, as given to `oclgrid tune`")
    export.add_argument("--to", metavar="FOLDER", default="results", help="default: ./results")
    add_source(export)

    tune = add("tune", searching.tune, "search hyper-parameters on validation data, "
               "then print the best point beside the paper's",
               example="tune sdaf-lambda-tau-digits")  # fmt: skip
    tune.add_argument("search", metavar="SEARCH", help="see `oclgrid list searches`, or a file")
    tune.add_argument("--method", help="search another method's space than the file says")
    tune.add_argument("--trials", type=int, help="how many (default: as the search says)")
    tune.add_argument("--confirm", action="store_true",
                      help="then test the best and the paper's point on 3 orders")  # fmt: skip
    tune.add_argument("--study-storage", metavar="WHERE",
                      help="database URL or journal file of the study "
                      "(default: $OCLGRID_STUDY, or optuna.db in the store's folder)")  # fmt: skip
    tune.add_argument("--slots", type=int, help=_SLOTS)
    tune.add_argument("--address", help="of a running Ray cluster (default: Ray on this machine)")
    add_store(tune)
    add_data(tune)

    def add_jobs(command: argparse.ArgumentParser) -> None:
        command.add_argument("--address", metavar="URL",
                             help="of a cluster's dashboard, e.g. http://127.0.0.1:8265 "
                             "(default: $RAY_API_SERVER_ADDRESS, or this machine)",
                             default=os.environ.get("RAY_API_SERVER_ADDRESS"))  # fmt: skip
        add_store(command)

    submit = add("submit", jobs.submit, "run a sweep or search that goes on without this terminal",
                 example="submit quickstart --follow")  # fmt: skip
    submit.add_argument("work", metavar="SWEEP|SEARCH")
    submit.add_argument("--follow", action="store_true", help="print what it says until it ends")
    submit.add_argument("--slots", type=int, help=_SLOTS)
    add_jobs(submit)
    add_data(submit)

    status = add("status", jobs.status, "say how submitted jobs stand", example="status")
    status.add_argument("name", metavar="NAME", nargs="?", help="of a sweep or search")
    add_jobs(status)

    logs = add("logs", jobs.logs, "print what a submitted job says",
               example="logs quickstart --follow")  # fmt: skip
    logs.add_argument("name", metavar="NAME")
    logs.add_argument("--follow", action="store_true", help="go on until it ends")
    add_jobs(logs)

    stop = add("stop", jobs.stop, "let a submitted job finish its stages and end",
               example="stop quickstart")  # fmt: skip
    stop.add_argument("name", metavar="NAME")
    add_jobs(stop)

    ui = add("ui", ui_command.ui, "open the MLflow UI on the store", example="ui quickstart")
    ui.add_argument("sweep", metavar="SWEEP", nargs="?", help="print links to its pages")
    ui.add_argument("--port", type=int, default=5000, help="on 127.0.0.1 (default: 5000)")
    add_store(ui)
    add_data(ui)

    add("secrets", cluster.make_secrets, "make the token and password of a cluster, if missing",
        example="secrets")  # fmt: skip

    serve = add("serve", cluster.serve, "be the tracking server of a cluster, behind a password",
                example="serve --host 10.0.0.5 --database postgresql+psycopg:///oclgrid "
                "--artifacts s3://bucket/oclgrid")  # fmt: skip
    serve.add_argument("--host", default="127.0.0.1", help="to bind to (default: 127.0.0.1)")
    serve.add_argument("--port", type=int, default=5000, help="default: 5000")
    serve.add_argument("--database", metavar="URL", required=True, help="PostgreSQL or SQLite")
    serve.add_argument("--artifacts", metavar="WHERE", required=True, help="bucket or folder")

    down = add("down", cluster.down, "end what `ray up` began on machines of your own",
               example="down cluster-local.yaml")  # fmt: skip
    down.add_argument("file", metavar="FILE", help="as given to `ray up`")

    data = add("data", do.data, "say which datasets are here, and how to get one that is not",
               example="data cifar10 --download")  # fmt: skip
    data.add_argument("dataset", metavar="DATASET", nargs="?")
    data.add_argument("--download", action="store_true", help="fetch a missing dataset")
    add_data(data)

    store = add("store", store_command.store, "copy a store, or an export, into another store",
                example="store copy results/cells.parquet oclgrid-store")  # fmt: skip
    store.add_argument("action", choices=["copy"])
    store.add_argument(
        "source",
        metavar="FROM",
        help="folder, address of an MLflow server, or export (FILE.parquet)",
    )
    store.add_argument("target", metavar="TO", help="folder, or address of an MLflow server")

    listing = add(
        "list", do.show, "list methods, datasets, sweeps or searches", example="list methods"
    )
    listing.add_argument("what", choices=["methods", "datasets", "sweeps", "searches"], nargs="?")
    return parser


if __name__ == "__main__":
    sys.exit(main())
