"""Run a sweep: ask the store what is missing, train that, file the tables."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oclgrid.platform import table
from oclgrid.platform.display import Display
from oclgrid.platform.location import Location
from oclgrid.platform.plan import Plan, check_data, content_digest, make_plan
from oclgrid.platform.provenance import provenance
from oclgrid.search_spaces.sweep import Sweep
from oclgrid.trainables.spec import CellSpec

if TYPE_CHECKING:
    from oclgrid.platform.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a run of a sweep ended."""

    rows: list[table.Row]
    failed: dict[str, str] = field(default_factory=dict)
    """Why, by the cell's title."""
    interrupted: int = 0
    """Cells that still wait to be finished."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Where and with what a sweep runs; none of it changes a number."""

    location: Location
    data: Path
    address: str | None = None
    """Of a Ray cluster; None starts Ray on this machine."""
    slots: int | None = None
    """CPUs to use on this machine; None means all."""


def run_sweep(sweep: Sweep, place: Surroundings, display: Display) -> Outcome:
    """Run every cell that has no result yet; return the table and what went wrong."""
    with display.phase("checking the data"):
        check_data(sweep.cells, place.data)
    with place.location.claimed():
        with display.phase("asking the store what is finished"):
            plan = make_plan(sweep, place.location)
        if plan.is_filed:
            display.say(f"all {len(sweep.cells)} cells of {sweep.name} are finished")
            return Outcome(rows=table.rows(sweep.cells, plan.found))
        return _run(sweep, plan, place, display)


def _run(sweep: Sweep, plan: Plan, place: Surroundings, display: Display) -> Outcome:
    display.say(plan.told)
    with place.location.serving() as server:
        with display.phase("starting the tracking server and Ray"):
            failed: dict[str, str] = {}
            cluster: Any = None
            try:
                if plan.todo:
                    from oclgrid.platform.launch import Cluster

                    cluster = Cluster(place.address, cpus=place.slots)
                if server is not None:
                    server.wait()
                from oclgrid.platform.store import Store

                store = Store(server.uri if server else place.location.reading_uri)
                filing = _Filing(sweep, store)
            except BaseException:
                if cluster is not None:
                    cluster.close()
                raise
        try:
            if plan.todo:
                failed = _train(plan, filing, cluster, place=place, display=display)
        finally:
            if cluster is not None:
                cluster.close()
        with display.phase("filing the tables"):
            return filing.close(failed)


def _train(
    plan: Plan, filing: "_Filing", cluster: Any, *, place: Surroundings, display: Display
) -> dict[str, str]:
    from oclgrid.platform.cell_log import MlflowCellLog
    from oclgrid.platform.launch import Events
    from oclgrid.trainables.cell import Assignment

    asked = cluster.request(filing.sweep.resources)
    with display.phase("preparing the runs"):
        runs = filing.prepare(plan)
    todo = {spec.cell_id: spec for spec in plan.todo}
    assignments = {
        c: Assignment(spec, MlflowCellLog(filing.store.uri, runs[c], spec))
        for c, spec in todo.items()
    }
    stages = {c: plan.found[c].stage if c in plan.found else 0 for c in todo}
    slots = cluster.slots(asked)
    with display.watching(todo, stages, slots=slots, poll=cluster.progress):
        errors: dict[str, str] = cluster.run(
            assignments,
            asked=asked,
            data=place.data,
            events=Events(display.result, display.retry),
        )
    return errors


class _Filing:
    """The sweep's own run and those of its groups, and what is written to them."""

    def __init__(self, sweep: Sweep, store: "Store") -> None:
        self.sweep, self.store = sweep, store
        self._tags = provenance()
        self._run = store.find_or_create(sweep.name, kind="sweep", sweep=sweep.name)

    def prepare(self, plan: Plan) -> dict[str, str]:
        """Return the run id of every cell still to run, creating what is missing."""
        self.store.set_status(self._run, "RUNNING")
        groups: dict[str, str] = {}
        runs = {}
        for spec in plan.todo:
            if spec.cell_id in plan.found:
                runs[spec.cell_id] = plan.found[spec.cell_id].run_id
                continue
            if spec.group_id not in groups:
                groups[spec.group_id] = self._group(spec)
            parent = groups[spec.group_id]
            runs[spec.cell_id] = self.store.create_cell(spec, parent=parent, tags=self._tags)
        return runs

    def _group(self, spec: CellSpec) -> str:
        name = f"{spec.method.name} {spec.dataset} M={spec.memory_size}"
        ids = {"sweep": self.sweep.name, "group_id": spec.group_id}
        return self.store.find_or_create(f"{name} (mean)", parent=self._run, kind="group", **ids)

    def close(self, errors: dict[str, str]) -> Outcome:
        """File what the store now holds; leave no run of this sweep RUNNING."""
        found = self.store.cells(self.sweep.cells)
        for run in found.values():
            if run.status in ("RUNNING", "SCHEDULED"):
                self.store.set_status(run.run_id, "KILLED")
        rows = table.rows(self.sweep.cells, found)
        for spec, row in zip(_first_of_groups(self.sweep.cells), rows, strict=True):
            if row.n:
                self._file_group(self._group(spec), row)
        self._upload(rows)
        titles = {spec.cell_id: spec.title for spec in self.sweep.cells}
        failed = {titles[c]: e for c, e in errors.items() if e != "interrupted"}
        interrupted = len(errors) - len(failed)
        is_done = all(c.cell_id in found and found[c.cell_id].is_finished for c in self.sweep.cells)
        status = "FINISHED" if is_done else "FAILED" if failed else "KILLED"
        self.store.set_tags(self._run, {"content": content_digest(self.sweep), **self._tags})
        self.store.set_status(self._run, status)
        return Outcome(rows=rows, failed=failed, interrupted=interrupted)

    def _file_group(self, run_id: str, row: table.Row) -> None:
        numbers = {"n": float(row.n)}
        for name, value in row.values.items():
            numbers[name] = value.mean
            if value.std is not None:
                numbers[f"{name}_std"] = value.std
        # Filed under the number of orders, not the clock: filing again changes nothing.
        self.store.log_numbers(run_id, numbers, step=row.n, at=row.n)
        tags = {"dataset": row.dataset, "memory": str(row.memory), "method": row.method}
        self.store.set_tags(run_id, tags)
        self.store.set_status(run_id, "FINISHED" if row.n == row.asked else "KILLED")

    def _upload(self, rows: list[table.Row]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {
                "table.md": table.to_markdown(rows),
                "table.csv": table.to_csv(rows),
                "cells.json": json.dumps([c.resolved for c in self.sweep.cells], indent=1),
            }.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            self.store.client.log_artifacts(self._run, folder)


def _first_of_groups(cells: tuple[CellSpec, ...]) -> list[CellSpec]:
    return list({spec.group_id: spec for spec in reversed(cells)}.values())[::-1]
