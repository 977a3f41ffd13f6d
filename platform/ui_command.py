"""The command that opens the MLflow UI, with links to the pages to look at first."""

import signal
import sys
from typing import TYPE_CHECKING, Any

from oclgrid.platform.commands import DONE, sweep_of

if TYPE_CHECKING:
    from oclgrid.platform.location import Location
    from oclgrid.search_spaces.sweep import Sweep


def ui(options: Any) -> int:
    """Serve the MLflow UI until interrupted."""
    from oclgrid.platform.location import find_store
    from oclgrid.trainables.schema import SpecError

    location = find_store(options.store)
    sweep = sweep_of(options) if options.sweep else None
    if location.folder is None:
        print(f"the store has its own server: {location.reading_uri}")
        _print_links(location, location.reading_uri, sweep)
        return DONE
    if not 1 <= options.port <= 65535:
        raise SpecError(f"--port must lie in [1, 65535], got {options.port}")
    if not location.exists:
        raise SpecError(f"there is no store in {location.folder}; `oclgrid run` makes one")
    try:
        with location.serving(port=options.port) as server:
            assert server is not None
            print("starting the MLflow UI ...", file=sys.stderr)
            server.wait()
            print(f"MLflow UI: {server.uri} (Ctrl-C to stop)", flush=True)
            _print_links(location, server.uri, sweep)
            signal.pause()
    except KeyboardInterrupt:  # also while the links are read
        print("stopped", file=sys.stderr)
    return DONE


def _print_links(location: "Location", uri: str, sweep: "Sweep | None") -> None:
    """Print the addresses of the runs, and of a sweep's means, stages, comparison and report."""
    from oclgrid.platform.links import runs_link, sweep_links
    from oclgrid.platform.reading import open_source

    if sweep is None and location.folder is None:
        return  # a server may be far away; its address has been printed
    source = open_source(location)
    if source.experiment_id is None:
        return
    links = {"runs": runs_link(uri, source.experiment_id)}
    run = source.sweep(sweep.name) if sweep else None
    if sweep and run:
        found = source.cells(sweep.cells)
        cells = [(c, found[c.cell_id]) for c in sweep.cells if c.cell_id in found]
        links |= sweep_links(uri, source.experiment_id, run, cells)
    elif sweep:
        print(f"oclgrid: the store holds no run of {sweep.name} yet", file=sys.stderr)
    for name, link in links.items():
        print(f"{name:8} {link}", flush=True)
