"""The report of a search: one HTML file with its best point, trials, pictures and provenance."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from oclgrid.platform import confirm, page
from oclgrid.platform.page import Section
from oclgrid.platform.report_provenance import cells_section, date, provenance
from oclgrid.platform.results import NUMBERS, CellRun, Source, SweepRun
from oclgrid.platform.table_formats import SHOWN, TITLES
from oclgrid.platform.trials import (
    TRIALS,
    TrialRow,
    beside_paper,
    best_of,
    brief,
    counted,
    judged_on,
    read_trials,
)
from oclgrid.search_spaces.search import Search
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import CellSpec

PICTURES = "pictures"
"""Tag of a search's run: the pictures that belong to its trials as they are filed."""
SHOWS = {
    "history.png": "Each trial by its number, and the best so far.",
    "importance.png": "Each parameter's share of the variance of the objective (fANOVA).",
    "slice.png": "The objective against each parameter by itself.",
    "contour_lambda_tau_w.png": "The objective over lambda and tau_w, near finished trials.",
    "parallel_coordinates.png": "Finished trials as lines through their parameters.",
    "intermediate_values.png": "The objective of each trial after each stage.",
    "objectives.png": "The first objective of each finished trial against the second.",
}
"""What a picture shows, by its name, in the order of the report."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """What the sections of the report are made of."""

    search: Search
    source: Source
    run: SweepRun
    rows: list[TrialRow]

    @cached_property
    def cells(self) -> dict[str, tuple[TrialRow, CellSpec]]:
        """The cells of all trials, by cell id."""
        begun = [row for row in self.rows if row.cells]
        pairs = [(row, spec) for row in begun for spec in self.search.cells(row.point)]
        return {spec.cell_id: (row, spec) for row, spec in pairs}

    @cached_property
    def found(self) -> Mapping[str, CellRun]:
        """What the store knows of the cells, by cell id."""
        return self.source.cells(spec for _, spec in self.cells.values())

    @cached_property
    def pictures(self) -> dict[str, tuple[bytes, str]]:
        """The pictures of the trials as they are filed, and what each shows, by file name."""
        shows = SHOWS | {
            f"contour_{a}_{b}.png": f"The objective over {a} and {b}, near finished trials."
            for a, b in permutations(self.search.space.ranges, 2)
        }
        filed = json.loads(self.run.tags.get(PICTURES, json.dumps(list(SHOWS))))
        return {
            name: (content, alt)
            for name, alt in shows.items()
            if name in filed and (content := self.source.artifact(self.run.run_id, name))
        }

    def line(self, row: TrialRow, names: list[str]) -> list[str]:
        """Return a trial's parameters and numbers as text."""
        point = [brief(row.point[p]) if p in row.point else "" for p in names]
        return [*point, *(_shown(n, row.numbers[n]) if n in row.numbers else "" for n in NUMBERS)]


def build_search_report(search: Search, source: Source) -> str:
    """Return the page; refuse a search of which the store holds no trials."""
    material, _ = _read(search, source)
    made = [make(material) for make in SECTIONS]
    return page.document(search.name, search.about, [s for s in made if s is not None])


def search_files(search: Search, source: Source) -> dict[str, bytes]:
    """Return the trials and the pictures of a search, by file name."""
    material, trials = _read(search, source)
    return {TRIALS: trials, **{name: content for name, (content, _) in material.pictures.items()}}


def _read(search: Search, source: Source) -> tuple[Material, bytes]:
    run = source.search(search.study)
    content = source.artifact(run.run_id, TRIALS) if run else None
    if run is None or content is None:
        raise SpecError(
            f"the store holds no trials of the search {search.name} as it is now "
            f"(study {search.study}); `oclgrid tune` runs it, --store names another store"
        )
    rows = read_trials(search, content.decode())
    return Material(search=search, source=source, run=run, rows=rows), content


def _best(m: Material) -> Section:
    told = f"Study {m.search.study}: {counted(m.rows)}. Judged by "
    told += f"{' and '.join(m.search.objectives)} {judged_on(m.search)}."
    body = page.paragraph(told)
    if m.run.status == "RUNNING":
        body += page.paragraph("It is going on or was killed; this was filed when it last stopped.")
    named = beside_paper(m.search, m.rows)
    if named:
        names = [p for p in m.search.space.ranges if any(p in row.point for _, row in named)]
        lines = [["point", "trial", *names, *(TITLES[n] for n in NUMBERS)]]
        lines += [[label, str(row.number), *m.line(row, names)] for label, row in named]
        body += page.table(lines, caption="The best point beside the paper's")
    return Section("best", "Best point", body)


def _confirmed(m: Material) -> Section | None:
    """Return the best against the paper's point on test data, where that was done."""
    best = best_of(m.search, m.rows)[:1]
    if not best or best[0].point == m.search.space.reference:
        return None
    chosen = confirm.confirmation(m.search, best[0])
    found = m.source.cells(chosen.sweep.cells)
    if not any(run.is_finished for run in found.values()):
        return None
    body = page.verbatim(confirm.told(chosen, found, best[0].number))
    return Section("confirmed", "Confirmed on test data", body)


def _pictures(m: Material) -> Section | None:
    parts = [page.png_figure(content, alt=alt) for content, alt in m.pictures.values()]
    return Section("pictures", "Pictures", page.figures(parts)) if parts else None


def _trials(m: Material) -> Section:
    names = list(m.search.space.ranges)
    numbers = [TITLES[n] for n in NUMBERS]
    lines = [["trial", "state", *names, *numbers, "steps", "seconds", "error"]]
    for row in m.rows:
        cost = [f"{row.reached} of {m.search.steps}", f"{row.seconds:.0f}"]
        lines.append([str(row.number), row.state, *m.line(row, names), *cost, row.error])
    body = page.table(lines, caption="Every trial", words=2, long=len(lines[0]) - 1)
    told = "Numbers of a pruned trial are of its last step, not to be compared with finished ones."
    return Section("trials", "Trials", body + page.notes([told]))


def _provenance(m: Material) -> Section:
    return provenance(
        [m.search.around],
        [run for run in m.found.values() if run.stage],
        facts={
            "study": m.search.study,
            "method": m.search.around.method.name,
            "sampler": f"{m.search.sampler}, seed {m.search.sampler_seed}",
            "search first submitted": date(m.run.started_at_ms),
        },
        text=m.search.text,
    )


def _cells(m: Material) -> Section:
    titles = {
        cell_id: f"trial {row.number}, order {spec.class_order}"
        for cell_id, (row, spec) in m.cells.items()
    }
    return cells_section(titles, m.found)


SECTIONS: tuple[Callable[[Material], Section | None], ...] = (
    _best, _confirmed, _pictures, _trials, _provenance, _cells,
)  # fmt: skip


def _shown(name: str, value: float) -> str:
    """Return a number with one digit more than in tables: points differ by little."""
    scale, digits = SHOWN[name]
    return f"{scale * value:.{digits + 1}f}"
