"""Addresses of pages of the MLflow UI, made so that a sweep can be looked at without searching."""

import json
from collections.abc import Iterable
from urllib.parse import quote

from oclgrid.platform.results import CellRun, SweepRun
from oclgrid.trainables.spec import CellSpec

COMPARED = 30
"""Runs in an address; browsers and proxies cut off addresses of many thousand letters."""
TRAINING = "workflowType=machine_learning"
"""Else MLflow shows the pages it has for language models."""


def runs_link(uri: str, experiment: str) -> str:
    """Return the page with all runs."""
    return f"{uri}/#/experiments/{experiment}/runs?{TRAINING}"


def sweep_links(
    uri: str, experiment: str, run: SweepRun, cells: Iterable[tuple[CellSpec, CellRun]]
) -> dict[str, str]:
    """Return what to look at first, by what it shows.

    The pages that compare take the cells of the lowest class orders, up to 30.
    """
    chosen = sorted(cells, key=lambda c: c[0].class_order)[:COMPARED]
    ids = _plain([cell.run_id for _, cell in chosen])
    place = f"runs={ids}&experiments={_plain([experiment])}"
    group = f"tags.kind = 'group' and tags.sweep = '{run.tags['sweep']}'"
    order = f"orderByKey={quote('metrics.`E`')}&orderByAsc=false"
    stages = f"metric={_plain('E')}&plot_metric_keys={_plain(['E'])}&x_axis=step"
    return {
        "means": f"{runs_link(uri, experiment)}&searchFilter={quote(group)}&{order}",
        "stages": f"{uri}/#/metric?{place}&{stages}&{TRAINING}",
        "compare": f"{uri}/#/compare-runs?{place}&{TRAINING}",
        "report": f"{uri}/#/experiments/{experiment}/runs/{run.run_id}/artifacts/report.html"
        f"?{TRAINING}",
    }


def _plain(value: object) -> str:
    return quote(json.dumps(value, separators=(",", ":")))
