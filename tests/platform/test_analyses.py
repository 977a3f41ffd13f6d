"""Analyses in a real store: filed once, done again when settings change, never a cell's undoing."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run

from oclgrid.platform.cell_log import MlflowCellLog
from oclgrid.platform.checks import check_data
from oclgrid.platform.location import find_store
from oclgrid.platform.plan import Plan, make_plan
from oclgrid.platform.provenance import provenance
from oclgrid.platform.reading import Folder
from oclgrid.platform.results import CellRun
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import Sweep, parse_sweep
from oclgrid.trainables.analysis import Analysis, Cka, Findings, Ood, Scree
from oclgrid.trainables.cell import Assignment, CellTrainable
from oclgrid.trainables.datasets import data_root
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.snapshots import Snapshots

GRID = {"dataset": "digits", "memory": 50, "orders": 1, "method": "er", "stream_fraction": 0.08}
FOUND = Findings(numbers={"directions": 2.5}, data={"eigenvalues": [0.5, 0.25]})


def sweep(**others: Any) -> Sweep:
    return parse_sweep({"sweep": "analyses", "cells": GRID, **others}, where="test")


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken(Analysis):
    """An analysis that cannot be done."""

    name = "broken"

    def compute(self, cell: Snapshots) -> Findings:
        raise ArithmeticError("nothing to\ncompute")


# What a plan says


def run_of(**others: Any) -> CellRun:
    known = {"run_id": "r", "status": "FINISHED", "stage": 5, "numbers": {}, "error": ""}
    return CellRun(**{**known, "ended_at_ms": 0, **others})


def plan(run: CellRun | None, *analyses: Analysis) -> Plan:
    cells = sweep().cells
    found = {cells[0].cell_id: run} if run else {}
    return Plan(cells=cells, found=found, is_filed=False, analyses=analyses)


def test_a_finished_cell_without_an_analysis_is_to_be_analysed_not_to_be_run() -> None:
    found = plan(run_of(), Scree())
    assert found.told == "1 cells: 1 to analyse"
    assert found.to_analyse
    assert not found.todo


def test_an_analysis_is_done_when_its_tag_has_the_digest_of_its_settings() -> None:
    done = run_of(tags={"analysis.scree": Scree().digest})
    assert plan(done, Scree()).told == "1 cells: 1 finished"
    assert plan(done, Scree(count=3)).told == "1 cells: 1 to analyse"
    assert plan(done, Scree(), Cka()).told == "1 cells: 1 to analyse"


def test_a_cell_that_is_not_finished_is_run_first() -> None:
    for run in (None, run_of(status="KILLED")):
        found = plan(run, Scree())
        assert found.todo
        assert not found.to_analyse


def test_missing_outliers_are_refused_with_the_remedy(tmp_path: Path) -> None:
    asked = sweep(analyses={"ood": {"outliers": "svhn"}})
    with pytest.raises(SpecError, match="oclgrid data svhn --download"):
        check_data(asked.cells, tmp_path, asked.analyses)
    check_data(asked.cells, tmp_path, sweep(analyses=["ood"]).analyses)


# What a trial files


@pytest.fixture(scope="module")
def cell(one_thread: None) -> Cell:
    """A cell that is finished."""
    cell = Cell(sweep().cells[0], data_root())
    while not cell.is_finished:
        cell.run_stage()
    return cell


@pytest.fixture
def log(server_uri: str, cell: Cell) -> MlflowCellLog:
    """The log of a run that is finished, with the checkpoint of its last stage only."""
    store = Store(server_uri)
    parent = store.find_or_create("analyses", kind="sweep", sweep="analyses")
    run_id = store.create_cell(cell.spec, parent=parent, tags=provenance())
    log = MlflowCellLog(server_uri, run_id, cell.spec)
    log.stage_done(cell.records, cell.checkpoint())
    assert log.undelivered(60) == ""
    store.set_status(run_id, "FINISHED")
    return log


def run_in(log: MlflowCellLog) -> Run:
    return Store(log.uri).client.get_run(log.run_id)


def history(log: MlflowCellLog, name: str) -> list[tuple[int, float]]:
    points = Store(log.uri).client.get_metric_history(log.run_id, name)
    return [(p.step, p.value) for p in sorted(points, key=lambda p: p.timestamp)]


def steps(log: MlflowCellLog, *analyses: Analysis) -> Iterator[dict[str, Any]]:
    """The results of a trial, as Tune would see them."""
    trial = CellTrainable.__new__(CellTrainable)
    trial._trial_info = None
    trial._data, trial._share = str(data_root()), {}
    trial._assignments = {"cell": Assignment(log.spec, log, analyses=analyses)}
    trial.reset_config({"cell_id": "cell"})
    while True:
        result = trial.step()
        yield result
        if result["done"]:
            return


@pytest.mark.slow
def test_a_finished_cell_is_analysed_and_not_touched_otherwise(log: MlflowCellLog) -> None:
    before = run_in(log)
    results = list(steps(log, Scree(), Ood(images=20)))
    assert [r["next"] for r in results] == ["scree", "ood", ""]
    assert [r.get("analysis") for r in results] == [None, "scree", "ood"]
    after = run_in(log)
    assert after.info == before.info
    assert after.data.tags["analysis.scree"] == Scree().digest
    assert after.data.tags["analysis_error"] == ""
    assert after.data.metrics["ood/photos"] > 0.5
    assert history(log, "stage") == [(5, 5)]
    client = Store(log.uri).client
    names = {f.path for f in client.list_artifacts(log.run_id, "analyses")}
    assert names == {f"analyses/{n}" for n in ("scree.json", "scree.png", "ood.json", "ood.png")}
    (only,) = steps(log, Scree(), Ood(images=20))
    assert "analysis" not in only


@pytest.mark.slow
def test_filing_findings_again_changes_nothing_and_other_settings_come_later(
    log: MlflowCellLog, tmp_path: Path
) -> None:
    for _ in range(2):
        log.analysed(Scree(), FOUND, stage=5)
    assert history(log, "scree/directions") == [(5, 2.5)]
    smaller = replace(FOUND, numbers={"directions": 1.5})
    log.analysed(Scree(count=1), smaller, stage=5)
    run = run_in(log)
    assert run.data.tags["analysis.scree"] == Scree(count=1).digest
    assert run.data.metrics["scree/directions"] == 1.5
    copy = Store(log.uri).client.download_artifacts(
        log.run_id, "analyses/scree.json", str(tmp_path)
    )
    assert json.loads(Path(copy).read_text()) == {
        "format": 1,
        "analysis": "scree",
        "settings": {"count": 1},
        "numbers": {"directions": 1.5},
        "data": {"eigenvalues": [0.5, 0.25]},
    }


@pytest.mark.slow
def test_a_number_that_the_settings_no_longer_ask_for_is_not_found_any_more(
    server_uri: str, store_folder: Path
) -> None:
    store = Store(server_uri)
    (spec,) = sweep(cells={**GRID, "memory": 8}).cells
    log = MlflowCellLog(server_uri, store.create_cell(spec, parent="none", tags={}), spec)

    def analyse(**areas: float) -> None:
        curves = {name: ([0.0, 1.0], [0.0, 1.0]) for name in areas}
        findings = Findings(numbers=areas, data={"curves": curves})
        log.analysed(Ood(outliers=tuple(areas)), findings, stage=5)

    analyse(svhn=0.9, photos=0.8)
    analyse(photos=0.7)
    for source in (store, Folder(store_folder)):
        assert source.cells([spec])[spec.cell_id].numbers == {"ood/photos": 0.7}
    analyse(svhn=0.6)
    assert store.cells([spec])[spec.cell_id].numbers == {"ood/svhn": 0.6}


@pytest.mark.slow
def test_findings_cut_off_before_their_tag_are_filed_under_the_same_time(
    log: MlflowCellLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def killed(run_id: str, tags: dict[str, str]) -> None:
        if tags == {"analysis.scree": Scree().digest}:
            raise KilledError
        Store(log.uri).set_tags(run_id, tags)

    with monkeypatch.context() as patch:
        patch.setattr(log._store, "set_tags", killed)
        with pytest.raises(KilledError):
            log.analysed(Scree(), FOUND, stage=5)
    assert log.filed().analyses == {}
    log.analysed(Scree(), FOUND, stage=5)
    assert history(log, "scree/directions") == [(5, 2.5)]
    assert log.filed().analyses == {"scree": Scree().digest}


@pytest.mark.slow
def test_an_analysis_that_fails_leaves_the_cell_finished_and_the_others_done(
    log: MlflowCellLog,
) -> None:
    _, broken, lost, scree = steps(log, Broken(), Cka(), Scree())
    assert broken["analysis_error"] == "ArithmeticError: nothing to compute"
    assert "checkpoint of stage 1 is missing" in lost["analysis_error"]
    assert scree["analysis_error"] == ""
    run = run_in(log)
    assert run.info.status == "FINISHED"
    assert run.data.tags["analysis_error"].startswith("broken: ArithmeticError: nothing to compute")
    assert "cka: CheckpointError" in run.data.tags["analysis_error"]
    assert "error" not in run.data.tags
    assert {k for k in run.data.tags if k.startswith("analysis.")} == {"analysis.scree"}


@pytest.mark.slow
def test_a_finished_cell_whose_checkpoint_is_damaged_is_not_trained_again(
    log: MlflowCellLog, store_folder: Path
) -> None:
    (file,) = store_folder.glob(f"artifacts/**/{log.run_id}/**/stage-5-*.pt")
    file.write_bytes(b"cut off")
    *_, last = steps(log, Scree())
    assert "checkpoint of the last stage is missing or damaged" in last["analysis_error"]
    assert run_in(log).info.status == "FINISHED"
    assert history(log, "stage") == [(5, 5)]


@pytest.mark.slow
def test_the_plan_of_a_store_knows_which_analyses_are_done(server_uri: str) -> None:
    store, cells = Store(server_uri), {**GRID, "memory": 7}
    (spec,) = sweep(cells=cells).cells
    run_id = store.create_cell(spec, parent="none", tags={})
    store.set_status(run_id, "FINISHED")
    MlflowCellLog(server_uri, run_id, spec).analysed(Scree(), FOUND, stage=5)

    def told(*analyses: str) -> str:
        asked = sweep(cells=cells, analyses=list(analyses))
        return make_plan(asked, find_store(server_uri)).told

    assert told() == told("scree") == "1 cells: 1 finished"
    assert told("scree", "cka") == "1 cells: 1 to analyse"
