"""A result table as Markdown and LaTeX for people, as CSV and Parquet for programs."""

import csv
import io
import re
from collections.abc import Collection, Sequence
from typing import Any

from oclgrid.platform.results import NUMBERS
from oclgrid.platform.spread import Spread
from oclgrid.platform.table import SECONDS, Row, best, notes
from oclgrid.search_spaces.paper import Printed

TEXT_COLUMNS = 3
"""Columns on the left that hold words."""
SHOWN = {"E": (100, 1), "A": (100, 1), "F": (1, 3), "beta": (1, 3), SECONDS: (1, 0)}
"""Scale and digits: E and A in percent, F and beta as fractions, as in the paper."""
TITLES = {"E": "E %", "A": "A %", "F": "F", "beta": "beta", SECONDS: "seconds"}


def grid(table: Sequence[Row], *, seconds: bool = True) -> list[list[str]]:
    """Return the table as text, header first; the paper has columns only where it has numbers."""
    judged = any(row.judgement for row in table)
    paired = [k for k in ("A", "F", "beta") if any(k in row.beside for row in table)]
    header = ["dataset", "memory", "method", "n", TITLES["E"]]
    header += ["paper", "difference", "verdict"] if judged else []
    header += [TITLES[k] + (" (paper)" if k in paired else "") for k in ("A", "F", "beta")]
    lines = [header + ([TITLES[SECONDS]] if seconds else [])]
    for row in table:
        count = str(row.n) if row.n == row.asked else f"{row.n} of {row.asked}"
        cells = [row.dataset, str(row.memory), row.label, count, shown("E", row.values.get("E"))]
        cells += _judged(row) if judged else []
        for name in ("A", "F", "beta"):
            beside = f" ({shown(name, row.beside[name])})" if name in row.beside else ""
            cells.append(shown(name, row.values.get(name)) + beside)
        if seconds:
            cells.append(shown(SECONDS, row.values.get(SECONDS)))
        lines.append(cells)
    return lines


def _judged(row: Row) -> list[str]:
    found = row.judgement
    if found is None:
        return ["", "", ""]
    difference = "" if found.difference is None else f"{100 * found.difference:+.1f}"
    margin = "" if found.margin is None else f" ± {100 * found.margin:.1f}"
    return [shown("E", found.printed), difference + margin, found.verdict]


def shown(name: str, value: Spread | Printed | None) -> str:
    """Return a number in its unit, with its spread where that is known."""
    if value is None:
        return "-"
    scale, digits = SHOWN[name]
    mean = f"{value.mean * scale:.{digits}f}"
    return mean if value.std is None else f"{mean} ± {value.std * scale:.{digits}f}"


def to_markdown(table: Sequence[Row], *, seconds: bool = True) -> str:
    """Return the table, lined up, and its notes below it."""
    lines = grid(table, seconds=seconds)
    words = {i for i, title in enumerate(lines[0]) if i < TEXT_COLUMNS or title == "verdict"}
    below = [f"- {note}\n" for note in notes(table)]
    return "".join([lined_up(lines, words), *(["\n"] if below else []), *below])


def lined_up(lines: Sequence[Sequence[str]], words: Collection[int]) -> str:
    """Return a Markdown table, header first; columns that hold no words are flush right."""
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(lines[0]))]
    rule = ["-" * w if i in words else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "".join(
        "| "
        + " | ".join(
            cell.ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |\n"
        for line in [lines[0], rule, *lines[1:]]
    )


def to_latex(table: Sequence[Row], *, seconds: bool = True) -> str:
    """Return a table for the package booktabs; the best of a dataset and memory size is bold."""
    header, *lines = grid(table, seconds=seconds)
    for name in NUMBERS:
        column = next(j for j, title in enumerate(header) if title.startswith(TITLES[name]))
        for i in best(table, name):
            lines[i][column] = f"**{lines[i][column]}**"
    words = ["l" if i < TEXT_COLUMNS or t == "verdict" else "r" for i, t in enumerate(header)]
    text = ["% needs \\usepackage{booktabs}", "\\begin{table}", "\\centering", "\\small",
            f"\\begin{{tabular}}{{{''.join(words)}}}", "\\toprule", _latex_line(header),
            "\\midrule"]  # fmt: skip
    for i, (row, line) in enumerate(zip(table, lines, strict=True)):
        if i and row.contest != table[i - 1].contest:
            text.append("\\midrule")
        text.append(_latex_line(line))
    text += ["\\bottomrule", "\\end{tabular}"]
    text += [f"\\par\\footnotesize {_latex(note)}" for note in notes(table)]
    return "\n".join([*text, "\\end{table}", ""])


def _latex_line(cells: list[str]) -> str:
    return " & ".join(map(_latex, cells)) + " \\\\"


_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "±": "$\\pm$",
    "<": "$<$",
    ">": "$>$",
}


def _latex(cell: str) -> str:
    """Return a text with what LaTeX would misread escaped, and **...** in bold."""
    bold = re.fullmatch(r"\*\*(.*)\*\*", cell)
    text = "".join(_SPECIAL.get(c, c) for c in (bold[1] if bold else cell))
    text = re.sub(r"^([+-])(?=\d)", r"$\1$", text)  # a sign, not a hyphen
    return f"\\textbf{{{text}}}" if bold else text


def records(table: Sequence[Row], *, seconds: bool = True) -> list[dict[str, Any]]:
    """Return the table under one name per value; accuracies are fractions, None is not known."""
    return [_record(row, [*NUMBERS, *([SECONDS] if seconds else [])]) for row in table]


def _record(row: Row, names: list[str]) -> dict[str, Any]:
    record: dict[str, Any] = {"dataset": row.dataset, "memory": row.memory, "method": row.method}
    record["n"] = row.n
    for name in names:
        value = row.values.get(name)
        record[f"{name}_mean"] = value.mean if value else None
        record[f"{name}_std"] = value.std if value else None
    found = row.judgement
    return record | {
        "asked": row.asked,
        "label": row.label,
        "departures": "; ".join(f"{k} {v}" for k, v in row.departures.items()),
        "group_id": row.spec.group_id,
        **{f"{k}_paper": row.printed[k].mean if k in row.printed else None for k in NUMBERS},
        "E_paper_std": found.printed.std if found else None,
        "E_difference": found.difference if found else None,
        "E_margin": found.margin if found else None,
        "verdict": found.verdict if found else "",
    }


def to_csv(table: Sequence[Row], *, seconds: bool = True) -> str:
    """Return the table as CSV; empty fields are not known (yet)."""
    text = io.StringIO()
    lines = records(table, seconds=seconds)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(lines[0] if lines else [])
    for line in lines:
        values = line.values()
        writer.writerow([f"{v:.6f}" if isinstance(v, float) else v for v in values])
    return text.getvalue()


def to_parquet(table: Sequence[Row], *, seconds: bool = True) -> bytes:
    """Return the table as a Parquet file; columns without a value are of floating point."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = records(table, seconds=seconds)
    columns = {name: [line[name] for line in lines] for name in lines[0]}
    arrays = {
        name: pa.array(values, pa.float64() if set(values) == {None} else None)
        for name, values in columns.items()
    }
    buffer = io.BytesIO()
    pq.write_table(pa.table(arrays), buffer)
    return buffer.getvalue()
