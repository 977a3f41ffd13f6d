"""Stores that earlier versions wrote, one of each format: nothing in them is trained again."""

import csv
import io
import tarfile
from pathlib import Path

import pytest

from oclgrid.platform.cli import main
from oclgrid.platform.location import Location
from oclgrid.platform.plan import make_plan
from oclgrid.search_spaces.sweep import read_sweep
from oclgrid.trainables.loop import CHECKPOINT_FORMAT
from tests.formats.make import SWEEP

pytestmark = pytest.mark.slow

STORES = sorted(Path(__file__).parent.glob("store-*.tar.xz"))


@pytest.fixture(params=STORES, ids=lambda p: p.name)
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sweep and the store that an earlier version left of it."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "kept.yaml").write_text(SWEEP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCLGRID_OUTBOX", str(tmp_path / "outbox"))
    return tmp_path


def test_a_store_of_the_present_format_is_kept() -> None:
    assert f"store-{CHECKPOINT_FORMAT}.tar.xz" in {path.name for path in STORES}


def test_finished_cells_are_known_and_begun_ones_go_on(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(read_sweep("kept.yaml"), Location(kept / "store", None))
    assert [plan.stage(c) for c in plan.cells] == [5, 2, 0]
    before = {c: r.run_id for c, r in plan.found.items()}
    assert main(["run", "kept.yaml", "--store", "store", "--format", "csv"]) == 0
    output, said = capsys.readouterr()
    assert "3 cells: 1 finished, 1 resumable, 1 missing" in said
    assert "order 1: stage 3 of 5" in said
    assert "order 1: stage 2 of 5" not in said
    (row,) = csv.DictReader(io.StringIO(output))
    assert row["n"] == "3"
    after = make_plan(read_sweep("kept.yaml"), Location(kept / "store", None)).found
    assert before.items() <= {c: r.run_id for c, r in after.items()}.items()
