"""The commands that look at results: take the parsed options, print, return the exit code.

Slow imports stand inside the functions, so that help and refusals come at once.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oclgrid.platform.commands import (
    DONE,
    check_output,
    print_rows,
    sweep_of,
    tell_undecoded,
    write_whole,
)

if TYPE_CHECKING:
    from oclgrid.platform.results import Source
    from oclgrid.search_spaces.search import Search


def table(options: Any) -> int:
    """Print the results of a sweep."""
    from oclgrid.platform.table import rows

    check_output(options)
    sweep = sweep_of(options)
    source = _source(options)
    found = source.cells(sweep.cells) if source else {}
    print_rows(rows(sweep.cells, found), options)
    tell_undecoded(sweep)
    if todo := len(sweep.cells) - sum(run.is_finished for run in found.values()):
        print(
            f"oclgrid: {todo} of {len(sweep.cells)} cells are not finished; "
            f"`oclgrid run {options.sweep}` runs them",
            file=sys.stderr,
        )
    return DONE


def _source(options: Any) -> Any:
    """Return where the options say that results are; None for a store that does not exist yet."""
    from oclgrid.platform.location import find_store
    from oclgrid.platform.reading import open_source
    from oclgrid.trainables.schema import SpecError

    if options.source is not None:
        from oclgrid.platform.export import Export

        if options.store is not None:
            raise SpecError("--from and --store name two sources; give one of them")
        return Export(Path(options.source))
    location = find_store(options.store)
    return open_source(location) if location.exists else None


def _required_source(options: Any, purpose: str) -> Any:
    """Return where the options say that results are; refuse a store that does not exist yet."""
    from oclgrid.trainables.schema import SpecError

    source = _source(options)
    if source is None:
        raise SpecError(
            f"there is no store to {purpose}; `oclgrid run` or `oclgrid tune` makes one, or name it"
        )
    return source


def export(options: Any) -> int:
    """Merge the finished cells of a sweep into a file, with its page; or write out a search."""
    from oclgrid.search_spaces.named import kind_of

    if kind_of(options.sweep) == "search":
        return _export_search(options)
    return _export_sweep(options)


def _export_search(options: Any) -> int:
    """Write the trials and pictures of a search to a folder of its own."""
    from oclgrid.platform.search_report import search_files
    from oclgrid.trainables.schema import SpecError

    search, source = search_of(options), _required_source(options, "export from")
    files = search_files(search, source)
    folder = Path(options.to) / search.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"cannot write to {folder} ({error.strerror}); change --to") from error
    for name, content in files.items():
        write_whole(folder / name, content)
    print(f"{len(files)} files of the search are in {folder}")
    return DONE


def _export_sweep(options: Any) -> int:
    from oclgrid.platform.export import CELLS, Export, export_cells
    from oclgrid.platform.export_page import export_page

    sweep, source = sweep_of(options), _required_source(options, "export from")
    folder = Path(options.to)
    print("reading the store ...", file=sys.stderr)
    count = export_cells(sweep, source, folder)
    for name, content in export_page(sweep, Export(folder / CELLS)).items():
        write_whole(folder / name, content)
    print(f"{count} of {len(sweep.cells)} cells are finished and now in {folder / CELLS}")
    tell_undecoded(sweep)
    return DONE


def compare(options: Any) -> int:
    """Print how two methods of a sweep differ, paired over class orders."""
    from oclgrid.platform.comparing import compare, to_markdown

    sweep = sweep_of(options)
    source = _source(options)
    found = source.cells(sweep.cells) if source else {}
    names = (options.one, options.two)
    print(to_markdown(compare(sweep, found, names, number=options.number)), end="")
    return DONE


def report(options: Any) -> int:
    """Write the report of a sweep, or of a search, as one HTML file."""
    from oclgrid.search_spaces.named import kind_of

    if kind_of(options.sweep) == "search":
        from oclgrid.platform.search_report import build_search_report

        search = search_of(options)
        return _write_report(options, search.name, lambda s: build_search_report(search, s))
    from oclgrid.platform.report import build_report
    from oclgrid.trainables.schema import SpecError

    if options.method is not None:
        raise SpecError("--method is for searches; a sweep names its methods itself")
    sweep = sweep_of(options)
    return _write_report(options, sweep.name, lambda source: build_report(sweep, source))


def search_of(options: Any) -> "Search":
    """Return the search that was asked for, on data that is decoded, as its study needs it."""
    from oclgrid.platform.data import undecoded_lines
    from oclgrid.search_spaces.search import on_data, read_search
    from oclgrid.trainables.datasets import data_root
    from oclgrid.trainables.schema import SpecError

    if options.source is not None:
        raise SpecError("--from is for sweeps: an export holds no searches; leave it out")
    search = read_search(options.sweep, method=options.method)
    search = on_data(search, data_root(options.data))
    for line in undecoded_lines([search.around]):
        raise SpecError(line)
    return search


def _write_report(options: Any, name: str, build: Callable[["Source"], str]) -> int:
    options.output = options.output or f"{name}.html"
    options.format = "html"
    check_output(options)
    print("reading the store and drawing ...", file=sys.stderr)
    source = _required_source(options, "report on")
    write_whole(Path(options.output), build(source).encode())
    print(f"the report is in {options.output}")
    return DONE
