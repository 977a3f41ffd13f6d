"""Run a sweep: ask the store what is missing, train that, file the tables."""

import json
import tempfile
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from oclgrid.platform import table, table_formats
from oclgrid.platform.display import Display
from oclgrid.platform.location import Location
from oclgrid.platform.plan import Plan, content_digest, make_plan
from oclgrid.platform.provenance import provenance
from oclgrid.platform.reading import open_source
from oclgrid.platform.results import ANALYSIS_ERROR, INTERRUPTED, PARENT
from oclgrid.platform.session import Session, Surroundings, session
from oclgrid.platform.spending import Ledger
from oclgrid.platform.stopping import Stop
from oclgrid.search_spaces.sweep import Sweep, on_data
from oclgrid.trainables.spec import CellSpec

if TYPE_CHECKING:
    from oclgrid.platform.claims import Driver
    from oclgrid.platform.store import Store
    from oclgrid.trainables.cell import Assignment


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run of a sweep ended."""

    rows: list[table.Row]
    failed: dict[str, str] = field(default_factory=dict)
    """Why, by the cell's title."""
    interrupted: int = 0
    """Cells that still wait to be finished."""
    stopped: str = ""
    """Why they do, where nobody asked to stop."""
    unanalysed: dict[str, str] = field(default_factory=dict)
    """Why analyses of a finished cell failed, by its title."""


def run_sweep(
    sweep: Sweep,
    place: Surroundings,
    display: Display,
    *,
    labels: Mapping[str, dict[str, str]] = MappingProxyType({}),
) -> Outcome:
    """Run every cell that has no result yet; return the table and what went wrong.

    ``labels`` are tags for the runs of single cells, by cell id.
    """
    with display.phase("asking the store what is finished"):
        sweep = on_data(sweep, place.data)
        plan = make_plan(sweep, place.location)
    if plan.is_filed:
        display.say(f"all {len(sweep.cells)} cells of {sweep.name} are finished")
        return Outcome(rows=table.rows(sweep.cells, plan.found))
    place = place.checked(sweep.resources, sweep.cells, display, sweep.analyses)
    sweep = on_data(sweep, place.data)
    with place.location.claimed():
        plan = make_plan(sweep, place.location)  # again: someone else may just have ended it
        display.say(plan.told)
        trains = bool(plan.todo or plan.to_analyse)
        with (
            session(
                place, sweep.resources, display, trains=trains, auto_share=plan.auto_share
            ) as held,
            held.stop.heeded(),
        ):
            from oclgrid.platform.claims import Driver

            with Driver(held.store, is_only=place.location.folder is not None) as driver:
                with driver.alone():
                    filing = _Filing(sweep, held.store, place.location, labels, driver)
                ledger = Ledger(sweep, held.asked, plan)
                held.stop.watch(ledger.note)
                errors = _share(filing, plan, place, held, display) if trains else {}
                if ledger.told:
                    display.say(ledger.told)
                with display.phase("filing the tables"), driver.alone():
                    outcome = filing.close(errors, ledger.told)
                return replace(outcome, stopped=held.stop.reason)


def _share(
    filing: "_Filing", plan: Plan, place: Surroundings, held: Session, display: Display
) -> dict[str, str]:
    """Train what is missing and wait for what others train; return the errors by cell id."""
    from oclgrid.platform.sharing import wait_for_others
    from oclgrid.trainables.cell import ELSEWHERE

    errors: dict[str, str] = {}
    while True:
        errors |= _train(filing, plan, place, held, display)
        theirs = [c for c in plan.cells if errors.get(c.cell_id, "").startswith(ELSEWHERE)]
        stopped = errors | {c.cell_id: INTERRUPTED for c in theirs}
        if not theirs or held.stop.is_asked:
            return stopped
        errors = {c: e for c, e in errors.items() if not e.startswith(ELSEWHERE)}
        left = wait_for_others(replace(plan, cells=tuple(theirs)), filing, display, held.stop)
        if held.stop.is_asked:
            return stopped
        errors |= left.failed
        if not left.plan.cells:
            return errors
        plan = left.plan


def _train(
    filing: "_Filing", plan: Plan, place: Surroundings, held: Session, display: Display
) -> dict[str, str]:
    """Train what is missing; return why each cell that has not finished did not, by cell id."""
    from oclgrid.platform.launch import Events

    cluster = held.cluster
    assert cluster is not None
    errors = {spec.cell_id: INTERRUPTED for spec in plan.todo + plan.to_analyse}
    assignments = filing.prepare(plan, display, held.stop)
    stages = {c: plan.stage(a.spec) for c, a in assignments.items()}
    cells = {c: a.spec for c, a in assignments.items()}
    slots = cluster.slots(held.asked)
    events = Events(display.result, display.retry)
    donors = filing.store.donors(cells.values())
    leaders, followers = _waves(cells.values(), donors)
    adopting = [s.cell_id for s in leaders if s.training_id in donors]
    adopting += [s.cell_id for s in followers]
    with display.watching(cells, stages, slots=slots, poll=cluster.progress, adopting=adopting):
        for wave in filter(None, (leaders, followers)):
            if held.stop.is_asked:
                break
            if wave is followers:
                donors = filing.store.donors(wave)
            chosen = filing.with_donors([assignments[spec.cell_id] for spec in wave], donors)
            errors |= cluster.run(chosen, asked=held.asked, data=place.data, events=events)
    return {cell_id: reason for cell_id, reason in errors.items() if reason}


def _waves(
    cells: Collection[CellSpec], trained: Container[str]
) -> tuple[list[CellSpec], list[CellSpec]]:
    """Return the cells that can run at once, and those whose training one of them does first.

    Cells of one training stand together: a worker tests them by the same features.
    """
    by_training: dict[str, list[CellSpec]] = {}
    for spec in cells:
        by_training.setdefault(spec.training_id, []).append(spec)
    leaders: list[CellSpec] = []
    followers: list[CellSpec] = []
    for training_id, (first, *others) in by_training.items():
        leaders.append(first)
        (leaders if training_id in trained else followers).extend(others)
    return leaders, followers


class _Filing:
    """The sweep's own run and those of its groups, and what is written to them."""

    def __init__(
        self,
        sweep: Sweep,
        store: "Store",
        location: Location,
        labels: Mapping[str, dict[str, str]],
        driver: "Driver",
    ) -> None:
        self.sweep, self.store, self._location, self._labels = sweep, store, location, labels
        self.driver = driver
        self._tags = provenance()
        self._run = store.find_or_create(sweep.name, kind="sweep", sweep=sweep.name)

    def prepare(self, plan: Plan, display: Display, stop: Stop) -> "dict[str, Assignment]":
        """Return every cell still to run with its log, creating the runs that are missing."""
        from oclgrid.platform.cell_log import MlflowCellLog
        from oclgrid.trainables.cell import Assignment

        self.store.set_status(self._run, "RUNNING")
        assignments = {}
        groups: dict[str, str] = {}
        work = plan.todo + plan.to_analyse
        with display.phase(f"preparing {len(work)} runs"), self.driver.alone():
            # Others may have made some since the plan was.
            found = {
                **plan.found,
                **self.store.cells(c for c in work if c.cell_id not in plan.found),
            }
            for spec in work:
                if stop.is_asked:
                    break
                if spec.cell_id in found:
                    run_id = found[spec.cell_id].run_id
                else:
                    if spec.group_id not in groups:
                        groups[spec.group_id] = self._group(spec)
                    parent = groups[spec.group_id]
                    tags = {**self._tags, "sweep": self.sweep.name}
                    run_id = self.store.create_cell(spec, parent=parent, tags=tags)
                log = MlflowCellLog(self.store.uri, run_id, spec, self.driver.claimant)
                assignments[spec.cell_id] = Assignment(spec, log, analyses=plan.analyses)
        return assignments

    def with_donors(
        self, assignments: "list[Assignment]", donors: Mapping[str, str]
    ) -> "dict[str, Assignment]":
        """Return the assignments, with a log to take trained stages from where there is one."""
        from oclgrid.platform.cell_log import MlflowCellLog

        chosen = {}
        for assignment in assignments:
            spec = assignment.spec
            if spec.training_id in donors:
                donor = MlflowCellLog(self.store.uri, donors[spec.training_id], spec)
                assignment = replace(assignment, donor=donor)
            chosen[spec.cell_id] = assignment
        return chosen

    def _group(self, spec: CellSpec) -> str:
        name = f"{spec.method.name} {spec.dataset} M={spec.memory_size}"
        ids = {"sweep": self.sweep.name, "group_id": spec.group_id}
        return self.store.find_or_create(f"{name} (mean)", parent=self._run, kind="group", **ids)

    def close(self, errors: dict[str, str], told: str) -> Outcome:
        """File what the store now holds; leave no run of this sweep RUNNING."""
        theirs = self.driver.elsewhere().keys()
        found = self.store.cells(self.sweep.cells)
        for cell_id, run in found.items():
            if run.status in ("RUNNING", "SCHEDULED") and cell_id not in theirs:
                self.store.set_status(run.run_id, "KILLED")
        for cell_id in self._labels.keys() & found.keys():
            self.store.set_tags(found[cell_id].run_id, self._labels[cell_id])
        rows = table.rows(self.sweep.cells, found)
        firsts = _first_of_groups(self.sweep.cells)
        groups = {spec.group_id: self._group(spec) for spec in firsts}
        for spec, row in zip(firsts, rows, strict=True):
            self._file_group(groups[spec.group_id], row)
        for spec in self.sweep.cells:
            known = found.get(spec.cell_id)
            if known is not None and PARENT not in known.tags:  # it came from an export
                self.store.set_tags(known.run_id, {PARENT: groups[spec.group_id]})
        self._upload(rows)
        titles = {spec.cell_id: spec.title for spec in self.sweep.cells}
        failed = {titles[c]: e for c, e in errors.items() if e != INTERRUPTED}
        interrupted = len(errors) - len(failed)
        now = Plan(
            cells=self.sweep.cells, found=found, is_filed=False, analyses=self.sweep.analyses
        )
        unanalysed = {
            spec.title: found[spec.cell_id].tags.get(ANALYSIS_ERROR, "")
            for spec in now.to_analyse
            if spec.cell_id not in errors and spec.cell_id not in theirs
        }
        is_done = all(row.n == row.asked for row in rows)
        status = "FINISHED" if is_done else "FAILED" if failed else "KILLED"
        if not is_done and theirs & found.keys():
            status = "RUNNING"
        tags = {**self._tags, "content": content_digest(self.sweep), "estimate": told}
        self.store.set_tags(self._run, tags)
        self.store.describe(self._run, table_formats.to_markdown(rows))
        self.store.set_status(self._run, status)
        return Outcome(rows=rows, failed=failed, interrupted=interrupted, unanalysed=unanalysed)

    def _file_group(self, run_id: str, row: table.Row) -> None:
        numbers = {"n": float(row.n)}
        for name, value in row.values.items():
            numbers[name] = value.mean
            if value.std is not None:
                numbers[f"{name}_std"] = value.std
        # Under the time of the last cell, not of the filing: filing again changes nothing.
        if row.n:
            self.store.log_numbers(run_id, numbers, step=row.n, at=row.ended_at_ms)
        tags = {"dataset": row.dataset, "memory": str(row.memory), "method": row.method}
        if row.n:
            told = table_formats.shown("E", row.values["E"])
            tags |= {"end_accuracy": f"{told} %, n = {row.n}"}
            # The run list shows some twenty letters of a name: what matters comes first.
            name = f"{row.label} M={row.memory} {told} % on {row.dataset}, mean of {row.n}"
            self.store.client.update_run(run_id, name=name[:250])
        self.store.set_tags(run_id, tags)
        self.store.set_status(run_id, "FINISHED" if row.n == row.asked else "KILLED")

    def _upload(self, rows: list[table.Row]) -> None:
        from oclgrid.platform.report import build_report

        with tempfile.TemporaryDirectory() as folder:
            for name, text in {
                "table.md": table_formats.to_markdown(rows),
                "table.csv": table_formats.to_csv(rows),
                "cells.json": json.dumps([c.resolved for c in self.sweep.cells], indent=1),
                "report.html": build_report(self.sweep, open_source(self._location)),
            }.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            self.store.client.log_artifacts(self._run, folder)


def _first_of_groups(cells: tuple[CellSpec, ...]) -> list[CellSpec]:
    return list({spec.group_id: spec for spec in reversed(cells)}.values())[::-1]
