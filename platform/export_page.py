"""The page of an exported sweep: its table, stage by stage, and where each number comes from."""

from collections import defaultdict

from oclgrid.platform.report_material import Material, stage_lines, where
from oclgrid.platform.report_provenance import date
from oclgrid.platform.results import CellRun, Source
from oclgrid.platform.table_formats import TEXT_COLUMNS, lined_up, to_markdown
from oclgrid.search_spaces.sweep import Sweep
from oclgrid.trainables.spec import CellSpec

ORIGIN = ["cell", "id", "E %", "finished", "commit", "torch", "machine"]


def export_page(sweep: Sweep, source: Source) -> dict[str, bytes]:
    """Return the page as Markdown and the pictures it shows, by file name."""
    m = Material.of(sweep, source)
    about = f"{sweep.about}\n\n" if sweep.about else ""
    parts = [f"# {sweep.name}\n\n{about}{to_markdown(m.table)}"]
    pictures = _pictures(m)
    if pictures:
        lines, told = stage_lines(m)
        parts += ["\n## Accuracy after each stage, %\n\n", lined_up(lines, range(TEXT_COLUMNS))]
        parts += ["\n", *(f"- {note}\n" for note in told)] if told else []
        parts += [f"\n![{alt}]({name})\n" for name, (alt, _) in pictures.items()]
        finished = (pair for row in m.table for pair in m.finished.get(row.spec.group_id, []))
        origins = [_origin(*pair) for pair in finished]
        words = [i for i, title in enumerate(ORIGIN) if title != "E %"]
        parts += ["\n## Where the numbers come from\n\n", lined_up([ORIGIN, *origins], words)]
    files = {name: svg.encode() for name, (_, svg) in pictures.items()}
    return {f"{sweep.name}.md": "".join(parts).encode(), **files}


def _pictures(m: Material) -> dict[str, tuple[str, str]]:
    """Return what a picture shows and its SVG, by file name."""
    from oclgrid.platform.sweep_figures import stagewise_figure

    made = {}
    for number, contest in enumerate(m.drawn(), start=1):
        name = f"{m.sweep.name}-stages{f'-{number}' if number > 1 else ''}.svg"
        svg = stagewise_figure({row.label: m.curves(row) for row in contest})
        made[name] = (f"Accuracy after each stage, {where(contest[0])}", svg)
    return made


def _origin(spec: CellSpec, run: CellRun) -> list[str]:
    tags = defaultdict(str, run.tags)
    machine = tags["hardware.gpu"]
    if machine in ("", "none"):
        machine = f"{tags['hardware.cpu']} {tags['hardware.kernels']}".strip()
    end = f"{100 * run.numbers['E']:.1f}"
    made_by = [tags["commit"][:12], tags["version.torch"], machine]
    return [spec.title, spec.cell_id, end, date(run.ended_at_ms), *made_by]
