"""Write a store of the present format: `python -m tests.formats.make`, once for each format.

One cell of its sweep is finished, one has ended its second stage, one is not begun. The weights
are all alike, so that the file is small.
"""

import sys
import tarfile
import tempfile
from pathlib import Path

import torch
import yaml

from oclgrid.platform.cell_log import MlflowCellLog
from oclgrid.platform.server import EmbeddedServer
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import parse_sweep
from oclgrid.trainables.datasets import data_root
from oclgrid.trainables.loop import CHECKPOINT_FORMAT, Cell
from oclgrid.trainables.spec import CellSpec

FOLDER = Path(__file__).parent
SWEEP = """
sweep: kept
cells: {dataset: digits, memory: 20, orders: 3, method: er, stream_fraction: 0.05}
"""


def main() -> int:
    """Write the file."""
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "store"
        with EmbeddedServer(store) as server:
            server.wait()
            fill(server.uri, parse_sweep(yaml.safe_load(SWEEP), where="kept").cells)
        (store / "server.log").unlink()
        with tarfile.open(FOLDER / f"store-{CHECKPOINT_FORMAT}.tar.xz", "w:xz") as archive:
            archive.add(store, "store", filter=anonymous)
    return 0


def fill(uri: str, cells: tuple[CellSpec, ...]) -> None:
    """File one whole cell and two stages of another."""
    store = Store(uri)
    sweep = store.find_or_create("kept", kind="sweep", sweep="kept")
    ids = {"sweep": "kept", "group_id": cells[0].group_id}
    group = store.find_or_create("er (mean)", parent=sweep, kind="group", **ids)
    for spec, stages in zip(cells, (5, 2), strict=False):
        log = MlflowCellLog(uri, store.create_cell(spec, parent=group, tags={}), spec)
        log.begin()
        cell = Cell(spec, data_root())
        for _ in range(stages):
            cell.run_stage()
            level(cell)
            log.stage_done(cell.records, cell.checkpoint())
        if cell.is_finished:
            log.finish(cell.records, cell.predictor())
        assert log.undelivered(60) == ""


def level(cell: Cell) -> None:
    """Set all weights to the same number."""
    for value in cell.method.state()["net"].values():
        if value.is_floating_point():
            value.fill_(0.01)


def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the entry without whose it was."""
    entry.uname = entry.gname = ""
    entry.uid = entry.gid = 0
    return entry


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
