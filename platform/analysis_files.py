"""What is filed of an analysis: its data as JSON and its figure as PNG."""

import json
import math
from typing import Any

from oclgrid.platform import figures
from oclgrid.trainables.analysis import Analysis, Findings

FORMAT = 1
FOLDER = "analyses"


def analysis_files(analysis: Analysis, findings: Findings, *, title: str) -> dict[str, bytes]:
    """Return the content of the files of an analysis, by their path in the run."""
    content = {
        "format": FORMAT,
        "analysis": analysis.name,
        "settings": analysis.settings,
        "numbers": findings.numbers,
        "data": findings.data,
    }
    text = json.dumps(_finite(content), allow_nan=False)
    return {
        f"{FOLDER}/{analysis.name}.json": text.encode(),
        f"{FOLDER}/{analysis.name}.png": analysis_figure(analysis.name, findings, title=title),
    }


def analysis_figure(name: str, findings: Findings, *, title: str) -> bytes:
    """Return the figure of an analysis of one cell, as PNG."""
    data, numbers = findings.data, findings.numbers
    match name:
        case "cka":
            return figures.cka_figure(data["table"], title=title)
        case "ood":
            return figures.roc_figure(data["curves"], numbers, title=title)
        case "tsne":
            kinds = {"test images": data["inliers"], data["outlier_set"]: data["outliers"]}
            return figures.plane_figure(kinds, title=title)
        case "centres":
            return figures.accuracies_figure(numbers, title=title)
        case "scree":
            return figures.scree_figure(data["eigenvalues"], title=title)
    raise ValueError(f"no figure is known for {name!r}")


def _finite(value: Any) -> Any:
    """Return plain data with null in place of what is no finite number, as JSON has it."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
