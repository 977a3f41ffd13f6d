"""A search in the store: its own run, the cells of its trials, and what is filed at the end."""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oclgrid.platform.cell_log import MlflowCellLog
from oclgrid.platform.claims import Claimant, Driver
from oclgrid.platform.location import Location
from oclgrid.platform.provenance import provenance
from oclgrid.platform.reading import open_source
from oclgrid.platform.search_report import PICTURES, build_search_report
from oclgrid.platform.store import Store, now_ms
from oclgrid.platform.study import Study
from oclgrid.platform.trials import TRIALS, trials_csv
from oclgrid.search_spaces.search import Search
from oclgrid.search_spaces.space import Point
from oclgrid.trainables.cell import Assignment
from oclgrid.trainables.spec import CellSpec


@dataclass(frozen=True, slots=True)
class Assign:
    """Tells a worker which cells a trial has, from what ``SearchFiling.begin`` put down."""

    search: Search
    uri: str
    claimant: Claimant | None = None

    def __call__(self, config: dict[str, Any]) -> list[Assignment]:
        """Return the cells of the trial, in the order of its class orders."""
        specs = self.search.cells(config["point"])
        return [
            Assignment(spec, MlflowCellLog(self.uri, run_id, spec, self.claimant))
            for spec, run_id in zip(specs, config["runs"], strict=True)
        ]


class SearchFiling:
    """The search's own run, with a run for every cell of its trials below it."""

    def __init__(self, search: Search, store: Store, location: Location, driver: Driver) -> None:
        self.search, self.store, self._location, self.driver = search, store, location, driver
        self._tags = provenance()
        names = {"kind": "search", "search": search.name, "study": search.study}
        with driver.alone():
            self.run_id = store.find_or_create(search.name, **names)
        store.set_tags(self.run_id, self._tags)
        store.set_status(self.run_id, "RUNNING")

    def begin(self, number: int, point: Point) -> dict[str, Any]:
        """Find or create the run of each cell of a trial; return what its workers need to know."""
        with self.driver.alone():
            return self._begin(number, self.search.cells(point))

    def _begin(self, number: int, specs: tuple[CellSpec, ...]) -> dict[str, Any]:
        found = self.store.cells(specs)
        own = {
            "search": self.search.name,
            "study": self.search.study,
            "trial": str(number),
            "pruned": "",
        }
        runs = []
        for spec in specs:
            if known := found.get(spec.cell_id):
                self.store.set_tags(known.run_id, own)
                runs.append(known.run_id)
            else:
                tags = {**self._tags, **own}
                runs.append(self.store.create_cell(spec, parent=self.run_id, tags=tags))
        return {"runs": runs}

    def end(self, point: Point, state: str) -> None:
        """Leave no cell of a trial RUNNING that nobody works on any more."""
        if state == "finished":
            return
        theirs = self.driver.elsewhere()
        for cell_id, run in self.store.cells(self.search.cells(point)).items():
            if run.status == "RUNNING" and cell_id not in theirs:
                if state == "pruned":
                    self.store.set_tags(run.run_id, {"pruned": f"in {self.search.study}"})
                self.store.set_status(run.run_id, "KILLED")

    def close(self, study: Study, pictures: dict[str, bytes], *, is_done: bool) -> None:
        """File the trials, the pictures and the report; say how the search stands."""
        rows = study.rows()
        for row in rows:
            self.end(row.point, row.state)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / TRIALS).write_text(trials_csv(self.search, rows), "utf-8")
            for name, content in pictures.items():
                (Path(folder) / name).write_bytes(content)
            self.store.client.log_artifacts(self.run_id, folder)
        states = [row.state for row in rows]
        counts = {f"trials_{s}": float(states.count(s)) for s in ("finished", "pruned", "failed")}
        best = study.best()
        numbers = {f"best_{k}": v for k, v in best[0].numbers.items()} if best else {}
        self.store.log_numbers(self.run_id, {**counts, **numbers}, step=len(rows), at=now_ms())
        chosen = {f"best.{k}": str(v) for k, v in best[0].point.items()} if best else {}
        self.store.set_tags(self.run_id, {**chosen, PICTURES: json.dumps(list(pictures))})
        self.store.set_status(self.run_id, "FINISHED" if is_done else "KILLED")
        report = build_search_report(self.search, open_source(self._location))
        self.store.client.log_text(self.run_id, report, "report.html")
        study.set_filed()
