"""The report of a sweep: one HTML file with its tables, figures, comparisons and provenance."""

from collections.abc import Callable

from oclgrid.platform import comparing, page
from oclgrid.platform.page import Section
from oclgrid.platform.report_analyses import ANALYSES
from oclgrid.platform.report_material import Material, numbers, pictures, stage_lines, where
from oclgrid.platform.report_provenance import cells_section, date, provenance
from oclgrid.platform.results import CellRun, Source
from oclgrid.platform.table import Row, best, notes
from oclgrid.platform.table_formats import TEXT_COLUMNS, grid
from oclgrid.search_spaces.sweep import Sweep
from oclgrid.trainables.spec import CellSpec


def build_report(sweep: Sweep, source: Source) -> str:
    """Return the page; sections without anything to show are left out."""
    material = Material.of(sweep, source)
    made = [make(material) for make in SECTIONS]
    return page.document(sweep.name, sweep.about, [s for s in made if s is not None])


def _results(m: Material) -> Section:
    body = page.table(grid(m.table), caption="Mean ± sample standard deviation over class orders",
                      words=TEXT_COLUMNS)  # fmt: skip
    leaders = [f"{m.table[i].label} on {where(m.table[i])}" for i in sorted(best(m.table, "E"))]
    led = f"Highest mean E: {', '.join(leaders)}." if leaders else ""
    return Section("results", "Results", page.paragraph(led) + body + page.notes(notes(m.table)))


def _stagewise(m: Material) -> Section | None:
    from oclgrid.platform.sweep_figures import stagewise_figure

    if not any(row.n for row in m.table):
        return None
    lines, told = stage_lines(m)
    drawn = [
        page.svg_figure(
            stagewise_figure({r.label: m.curves(r) for r in contest}),
            alt=f"Accuracy on the classes seen so far after each stage, {where(contest[0])}.",
        )
        for contest in m.drawn()
    ]
    body = page.figures(drawn) + page.table(lines, caption="Accuracy after each stage, %", words=3)
    return Section("stages", "Stage-wise accuracy", body + page.notes(told))


def _forgetting(m: Material) -> Section | None:
    from oclgrid.platform.sweep_figures import forgetting_figure

    drawn = [
        page.svg_figure(
            forgetting_figure(numbers(m, contest, "F")),
            alt=f"Forgetting F of each method, {where(contest[0])}; lower is better.",
        )
        for contest in m.drawn()
    ]
    return Section("forgetting", "Forgetting", page.figures(drawn)) if drawn else None


def _confusion(m: Material) -> Section | None:
    def alt(row: Row, spec: CellSpec, run: CellRun) -> str:
        printed = row.beside.get("beta")
        beside = f" (paper, one run: {printed.mean:.3f})" if printed else ""
        which = f"{row.label}, {where(row)}, order {spec.class_order}"
        return f"Confusion after the last stage: {which}; beta {run.numbers['beta']:.3f}{beside}."

    body = pictures(m, "confusion_matrix.png", alt)
    return Section("confusion", "Confusion matrices", body) if body else None


def _time(m: Material) -> Section | None:
    from oclgrid.platform.sweep_figures import time_figure

    drawn = [
        page.svg_figure(
            time_figure(*(numbers(m, contest, f"{k}_seconds") for k in ("train", "inference"))),
            alt=f"Seconds of training and inference over all stages, {where(contest[0])}.",
        )
        for contest in m.drawn()
    ]
    if not drawn:
        return None
    told = "Wall time on whatever ran the cells; see the hardware under provenance."
    return Section("time", "Time", page.figures(drawn) + page.paragraph(told))


def _compare(m: Material) -> Section | None:
    values = comparing.by_order(m.sweep, m.found, "E")
    made = []
    for contest in m.contests():
        leader = max(contest, key=lambda row: row.values["E"].mean)
        others = [row for row in contest if row is not leader]
        made += [comparing.pair_up(leader, row, values, number="E") for row in others]
    if not any(len(c.orders) > 1 for c in made):
        return None
    lines = [comparing.HEADER, *(comparing.line(c) for c in made)]
    body = page.table(lines, caption="The best by E against the others", words=4)
    picked = "The first of each pair was picked for its mean, so its lead is overstated a little."
    return Section("compare", "Comparisons", body + page.notes([*comparing.reading(made), picked]))


def _provenance(m: Material) -> Section:
    run = m.source.sweep(m.sweep.name)
    return provenance(
        m.sweep.cells,
        [run for runs in m.finished.values() for _, run in runs],
        facts={"sweep first submitted": date(run.started_at_ms)} if run else {},
        text=m.sweep.text,
    )


def _cells(m: Material) -> Section:
    return cells_section({spec.cell_id: spec.title for spec in m.sweep.cells}, m.found)


SECTIONS: tuple[Callable[[Material], Section | None], ...] = (
    _results, _stagewise, _forgetting, _confusion, *ANALYSES, _time, _compare, _provenance, _cells,
)  # fmt: skip
