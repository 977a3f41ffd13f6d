"""What a name on the command line stands for: sweeps and searches share one set of names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from oclgrid.search_spaces.search import searches
from oclgrid.search_spaces.sweep import presets
from oclgrid.search_spaces.yaml_file import read_yaml
from oclgrid.trainables.schema import unknown


def kind_of(name_or_file: str) -> Literal["sweep", "search"]:
    """Return what a preset's name, or the YAML file of that path, is."""
    path = Path(name_or_file)
    if path.suffix in (".yaml", ".yml") or "/" in name_or_file:
        data = read_yaml(path)
        is_search = isinstance(data, Mapping) and ("search" in data or "space" in data)
        return "search" if is_search else "sweep"
    if name_or_file in presets():
        return "sweep"
    if name_or_file in searches():
        return "search"
    raise unknown("sweep or search", name_or_file, [*presets(), *searches()])
