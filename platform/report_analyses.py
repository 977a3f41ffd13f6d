"""The report's sections of the paper's analyses, each where some cell has it."""

import json
from collections.abc import Callable, Sequence

from oclgrid.platform import page
from oclgrid.platform.page import Section
from oclgrid.platform.report_material import Material, numbers, pictures, place, where
from oclgrid.platform.results import CellRun
from oclgrid.platform.spread import spread
from oclgrid.platform.table import Row
from oclgrid.platform.table_formats import shown
from oclgrid.search_spaces.paper import SETTING, paper


def _cka(m: Material) -> Section | None:
    from oclgrid.platform.sweep_figures import cka_bars_figure

    def draw(contest: list[Row]) -> str:
        seen, unseen = (numbers(m, contest, f"cka/{k}") for k in ("seen", "unseen"))
        return page.svg_figure(
            cka_bars_figure(seen, unseen),
            alt=f"Linear CKA of contiguous stages on seen and unseen data, {where(contest[0])}.",
        )

    return _analysis(m, "cka", "Change of the backbone (CKA)", draw)


def _ood(m: Material) -> Section | None:
    from oclgrid.platform.sweep_figures import ood_bars_figure

    def draw(contest: list[Row]) -> str:
        keys = _keys(m, "ood")
        auc = {k: numbers(m, contest, f"ood/{k}") for k in keys if not k.endswith("_memory")}
        return page.svg_figure(
            ood_bars_figure(auc), alt=f"Area under the ROC curve by outliers, {where(contest[0])}."
        )

    return _analysis(m, "ood", "Outliers (OOD)", draw)


def _tsne(m: Material) -> Section | None:
    return _analysis(m, "tsne", "Features in the plane (t-SNE)", None)


def _centres(m: Material) -> Section | None:
    from oclgrid.platform.sweep_figures import accuracy_bars_figure

    def draw(contest: list[Row]) -> str:
        test = [k for k in _keys(m, "centres") if k.startswith("test_")]
        accuracies = {k.replace("_", " "): numbers(m, contest, f"centres/{k}") for k in test}
        return page.svg_figure(
            accuracy_bars_figure(accuracies),
            alt=f"Accuracy on test images by centres of exemplars or of other images, "
            f"{where(contest[0])}.",
        )

    return _analysis(m, "centres", "What class centres are means of", draw)


def _scree(m: Material) -> Section | None:
    from oclgrid.platform.sweep_figures import scree_overlay_figure

    def draw(contest: list[Row]) -> str:
        spectra = {}
        for row in contest:
            files = [m.source.artifact(r.run_id, "analyses/scree.json") for r in m.runs(row)]
            if curves := [json.loads(f)["data"]["eigenvalues"] for f in files if f]:
                spectra[row.label] = curves
        if not spectra:
            return ""
        return page.svg_figure(
            scree_overlay_figure(spectra),
            alt=f"Eigenvalues of the features' covariance, descending, {where(contest[0])}.",
        )

    return _analysis(m, "scree", "Eigenvalues of the features (scree)", draw)


def _analysis(
    m: Material, name: str, title: str, draw: Callable[[list[Row]], str] | None
) -> Section | None:
    """Return figures, numbers beside the paper's, and pictures of an analysis, if it was made."""
    keys = _keys(m, name)
    if not keys:
        return None
    having = [r for r in m.table if any(f"analysis.{name}" in run.tags for run in m.runs(r))]
    lines = [["dataset", "memory", "method", "n", *keys]]
    told = []
    for row in having:
        runs = [run for run in m.runs(row) if f"analysis.{name}" in run.tags]
        lines.append([*place(row), str(len(runs)), *(_mean(runs, f"{name}/{k}") for k in keys)])
        printed = paper().analysis(name, row.method)
        if printed and (row.dataset, row.memory) == SETTING and not row.departures:
            values = [f"{printed[k]:.3f}" if k in printed else "" for k in keys]
            lines.append([row.dataset, str(row.memory), f"{row.method}, paper", "", *values])
            told += paper().notes_on((name,), row.method)
    contests = [[r for r in contest if r in having] for contest in m.drawn()]
    drawn = [draw(contest) for contest in contests if contest] if draw else []
    body = page.figures([d for d in drawn if d])
    body += page.table(lines, caption=f"{title}: mean ± sample standard deviation", words=3)
    body += pictures(
        m,
        f"analyses/{name}.png",
        lambda row, spec, _: f"{title}: {row.label}, {where(row)}, order {spec.class_order}.",
    )
    return Section(name, title, body + page.notes(told))


def _keys(m: Material, name: str) -> list[str]:
    runs = [run for runs in m.finished.values() for _, run in runs]
    keys = {k for run in runs if f"analysis.{name}" in run.tags for k in run.numbers}
    return sorted(k.removeprefix(f"{name}/") for k in keys if k.startswith(f"{name}/"))


def _mean(runs: Sequence[CellRun], name: str) -> str:
    values = [run.numbers[name] for run in runs if name in run.numbers]
    return shown("beta", spread(values)) if values else "-"


ANALYSES = (_cka, _ood, _tsne, _scree, _centres)
