"""A self-contained HTML page: sections, sortable tables and pictures, all text escaped."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; list-style: none; }
a { color: LinkText; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; vertical-align: top; }
th.w, td.w { text-align: left; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
thead th { border-bottom: 2px solid; }
th[aria-sort] button::after { content: " \\2195"; opacity: .4; }
th[aria-sort=ascending] button::after { content: " \\2191"; opacity: 1; }
th[aria-sort=descending] button::after { content: " \\2193"; opacity: 1; }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0;
  cursor: pointer; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; max-width: 100%; }
figure img { background: #fff; max-width: 100%; width: 30rem; height: auto; border-radius: 4px; }
figcaption { font-size: .9rem; max-width: 30rem; }
pre { background: var(--soft); padding: .75rem; overflow-x: auto; }
.notes { font-size: .9rem; }
@media (max-width: 40rem) {
  th, td { padding: .2rem .35rem; font-size: .85rem; } th button::after { display: none; }
}
@media print {
  :root { color-scheme: light; } nav, th button::after { display: none; }
  body { max-width: none; font-size: 10pt; } .wide { overflow: visible; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; }
}
"""

# Sorting is an extra: without it the tables are as complete, in the order of the sweep.
SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const key = (row, i) => {
    const text = row.cells[i].textContent.trim(), number = parseFloat(text);
    return Number.isNaN(number) ? text : number;
  };
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (a, b) => (typeof a === typeof b ? (a > b) - (a < b) : a.sub ? 1 : -1);
      const rows = [...body.rows].sort((a, b) => order(key(a, i), key(b, i)));
      body.append(...(down ? rows.reverse() : rows));
    });
  });
}
"""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; ``body`` is HTML made by the functions below."""

    name: str
    title: str
    body: str


def document(title: str, about: str, sections: Sequence[Section]) -> str:
    """Return the page; it asks for nothing from anywhere and runs no script but its own."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
        f"form-action 'none'; script-src 'sha256-{digest}'"
    )
    links = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in sections)
    parts = "".join(
        f'<section id="{s.name}"><h2>{escape(s.title)}</h2>{s.body}</section>\n' for s in sections
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1>{paragraph(about)}</header>\n"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main>\n{parts}</main>\n'
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def table(
    lines: Sequence[Sequence[str]], *, caption: str, words: int = 1, long: int | None = None
) -> str:
    """Return a table that can be sorted.

    Args:
        lines: Texts, header first.
        caption: What the table shows.
        words: How many columns on the left hold words; the first is the header of its row.
        long: Position of a column whose text may need several lines.
    """
    header, *rest = lines
    heads = "".join(
        f'<th scope="col"{_kind(i, words, long)}>{escape(cell)}</th>'
        for i, cell in enumerate(header)
    )
    body = "".join(f"<tr>{_row(line, words, long)}</tr>\n" for line in rest)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="sortable"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )


def _row(line: Sequence[str], words: int, long: int | None) -> str:
    first, *rest = line
    cells = "".join(
        f"<td{_kind(i, words, long)}>{escape(cell)}</td>" for i, cell in enumerate(rest, start=1)
    )
    return f'<th scope="row" class="w">{escape(first)}</th>{cells}'


def _kind(position: int, words: int, long: int | None) -> str:
    if position == long:
        return ' class="w long"'
    return ' class="w"' if position < words else ""


def svg_figure(svg: str, *, alt: str) -> str:
    """Return a drawing with what it shows in words; as an image its names stay its own."""
    return _figure("image/svg+xml", svg.encode(), alt)


def png_figure(content: bytes, *, alt: str) -> str:
    """Return a picture with what it shows in words."""
    return _figure("image/png", content, alt)


def _figure(kind: str, content: bytes, alt: str) -> str:
    data = base64.b64encode(content).decode()
    image = f'<img alt="{escape(alt)}" src="data:{kind};base64,{data}">'
    return f"<figure>{image}<figcaption>{escape(alt)}</figcaption></figure>\n"


def figures(parts: Sequence[str]) -> str:
    """Return figures side by side where there is room."""
    return f'<div class="figures">{"".join(parts)}</div>\n' if parts else ""


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{escape(text)}</p>\n" if text else ""


def notes(texts: Sequence[str]) -> str:
    """Return footnotes."""
    lines = "".join(f"<li>{escape(t)}</li>" for t in texts)
    return f'<ul class="notes">{lines}</ul>\n' if texts else ""


def verbatim(text: str) -> str:
    """Return a text as it is, in a box."""
    return f"<pre>{escape(text)}</pre>\n"


def folded(summary: str, body: str) -> str:
    """Return a part that opens when asked for."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>\n"
