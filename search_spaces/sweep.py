"""A sweep: which cells to run, read from a YAML file or a preset."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from oclgrid.search_spaces.budget import Price, SweepBudget
from oclgrid.search_spaces.yaml_file import read_yaml
from oclgrid.trainables.analysis import ANALYSES, Analysis
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.decoded import UNDECODED, known_digest
from oclgrid.trainables.registry import find
from oclgrid.trainables.schema import SpecError, build, coerce, shown, unknown
from oclgrid.trainables.spec import Arrival, CellSpec, MethodConfig

PRESETS = Path(__file__).parent / "presets"
MAX_CELLS = 100_000
LEAST_SHARE = 0.01
"""Of a GPU; a CUDA context alone takes this much of a big one."""
KEYS = ("sweep", "about", "cells", "overrides", "analyses", "resources", "budget", "price")


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What a trial owns. It changes no number, so it is not part of a cell."""

    cpus: int = 1
    gpu: Literal["auto"] | float = "auto"
    """Share of a GPU's memory; a trial cannot take more.

    Auto is what cells like these were measured to need, a quarter before any was, and nothing
    where there is no GPU.
    """

    def __post_init__(self) -> None:
        if not 1 <= self.cpus <= 1024:
            raise SpecError(f"resources.cpus must lie in [1, 1024], got {self.cpus}")
        if self.gpu != "auto" and self.gpu != 0 and not LEAST_SHARE <= self.gpu <= 1:
            raise SpecError(
                f"resources.gpu must be auto, 0 or lie in [{LEAST_SHARE}, 1], as a cell trains on "
                f"one GPU; got {self.gpu}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Cells as the product of the values of each field."""

    dataset: tuple[str, ...]
    memory: tuple[int, ...]
    method: tuple[str, ...]
    orders: int | tuple[int, ...] = 3
    """How many class orders (0, 1, ...), or which."""
    seed: int = 0
    protocol: Literal["test", "validation"] = "test"
    stream_fraction: float = 1.0
    arrival: Arrival = "drawn"

    def __post_init__(self) -> None:
        if isinstance(self.orders, int) and not 1 <= self.orders <= 10_000:
            raise SpecError(f"cells.orders must lie in [1, 10000], got {self.orders}")
        for name, values in (("memory", self.memory), ("orders", self.class_orders)):
            if min(values) < 0:
                raise SpecError(f"cells.{name} must not be negative, got {min(values)}")

    @property
    def class_orders(self) -> tuple[int, ...]:
        """The class orders, as numbers."""
        return tuple(range(self.orders)) if isinstance(self.orders, int) else self.orders


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """A named set of cells."""

    name: str
    about: str
    cells: tuple[CellSpec, ...]
    resources: Resources
    text: str = ""
    """The file it was read from."""
    analyses: tuple[Analysis, ...] = ()
    """What to compute of each finished cell; none of it changes a cell."""
    budget: SweepBudget = field(default_factory=SweepBudget)
    price: Price = field(default_factory=Price)


def read_sweep(name_or_file: str, data: Path | None = None) -> Sweep:
    """Return the sweep of a preset's name or of a YAML file, on the data below a folder."""
    path = Path(name_or_file)
    if path.suffix not in (".yaml", ".yml") and "/" not in name_or_file:
        path = PRESETS / f"{name_or_file}.yaml"
        if name_or_file not in presets():
            raise unknown("sweep", name_or_file, presets())
    sweep = parse_sweep(read_yaml(path), where=path.name)
    sweep = replace(sweep, text=path.read_text(encoding="utf-8"))
    return sweep if data is None else on_data(sweep, data)


def presets() -> list[str]:
    """Return the names of the sweeps that ship with the installation."""
    return sorted(p.stem for p in PRESETS.glob("*.yaml"))


def parse_sweep(data: object, *, where: str) -> Sweep:
    """Return the sweep that plain data describes, every part of it checked."""
    if not isinstance(data, Mapping):
        raise SpecError(f"{where} must be a mapping with sweep and cells, got {shown(data)}")
    for key in data:
        if key not in KEYS:
            raise unknown(f"key of {where}", key, KEYS)
    for key in ("sweep", "cells"):
        if key not in data:
            raise SpecError(f"{where}: {key} is missing; add it")
    name = coerce(str, data["sweep"], "sweep")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise SpecError(
            f"sweep must be up to 64 letters, digits and any of . _ -, got {shown(name)}"
        )
    grids = _grids(data["cells"])
    configs = _configs(grids, data.get("overrides", {}))
    count = sum(_count(grid, configs) for grid in grids)
    if count > MAX_CELLS:
        raise SpecError(f"cells must not exceed {MAX_CELLS}, got {count}; split the sweep")
    cells = {c.cell_id: c for grid in grids for c in _cells(grid, configs)}
    return Sweep(
        name=name,
        about=coerce(str, data.get("about", ""), "about"),
        cells=tuple(cells.values()),
        resources=build(Resources, data.get("resources", {}), where="resources"),
        analyses=_analyses(data.get("analyses", [])),
        budget=build(SweepBudget, data.get("budget", {}), where="budget"),
        price=build(Price, data.get("price", {}), where="price"),
    )


def _analyses(data: object) -> tuple[Analysis, ...]:
    """Return the analyses of a list of names, or of a mapping of names to settings."""
    if isinstance(data, list):
        named: Mapping[Any, Any] = {n if isinstance(n, str) else shown(n): {} for n in data}
    elif isinstance(data, Mapping):
        named = data
    else:
        raise SpecError(f"analyses must list names or map them to settings, got {shown(data)}")
    for name in named:
        if name not in ANALYSES:
            raise unknown("analysis", name, ANALYSES)
    return tuple(
        build(ANALYSES[name], settings or {}, where=f"analyses.{name}")
        for name, settings in named.items()
    )


def on_data(sweep: Sweep, root: Path) -> Sweep:
    """Return the sweep with cells of the data decoded below a folder.

    Only cells on a dataset without a published digest change: until it is decoded there, their
    digest is UNDECODED, and so no run has their ids.
    """
    undecoded = {c.dataset for c in sweep.cells if c.data_digest == UNDECODED}
    digests = {name: known_digest(dataset(name), root) for name in undecoded}
    cells = tuple(
        replace(c, data_digest=digests[c.dataset]) if c.data_digest == UNDECODED else c
        for c in sweep.cells
    )
    return replace(sweep, cells=cells)


def _grids(data: object) -> list[Grid]:
    parts = data if isinstance(data, list) else [data]
    if not parts:
        raise SpecError("cells must name at least one cell, got an empty list")
    grids = []
    for i, part in enumerate(parts):
        where = f"cells[{i}]" if isinstance(data, list) else "cells"
        grids.append(build(Grid, part, where=where))
    return grids


def _configs(grids: list[Grid], overrides: object) -> dict[tuple[str, str], list[MethodConfig]]:
    """Return the resolved configs of each method of the sweep on each of its datasets."""
    names = sorted({m for g in grids for m in g.method})
    defaults: dict[str, Any] = {name: find(name).config for name in names}
    if not isinstance(overrides, Mapping):
        raise SpecError(f"overrides must map methods to fields, got {shown(overrides)}")
    for name in overrides:
        if name not in names:
            raise unknown("method in overrides", name, names)
    configs = {}
    for name, place in sorted({(m, d) for g in grids for m in g.method for d in g.dataset}):
        base = defaults[name](**defaults[name].for_dataset(place))
        configs[name, place] = _variants(overrides.get(name, {}), base, f"overrides.{name}")
    return configs


def _variants(overrides: object, base: MethodConfig, where: str) -> list[MethodConfig]:
    """Return a config of a mapping of fields, or one of each mapping of a list."""
    if not isinstance(overrides, list):
        return [_variant(overrides, base, where)]
    if not overrides:
        raise SpecError(f"{where} must name at least one variant, got an empty list")
    return [_variant(fields, base, f"{where}[{i}]") for i, fields in enumerate(overrides)]


def _variant(fields: object, base: MethodConfig, where: str) -> MethodConfig:
    if isinstance(fields, Mapping) and "name" in fields:
        raise SpecError(f"{where}.name cannot be changed; remove it")
    return build(type(base), fields, where=where, base=base)


def _count(grid: Grid, configs: dict[tuple[str, str], list[MethodConfig]]) -> int:
    variants = sum(len(configs[method, name]) for method in grid.method for name in grid.dataset)
    return variants * len(grid.memory) * len(grid.class_orders)


def _cells(grid: Grid, configs: dict[tuple[str, str], list[MethodConfig]]) -> list[CellSpec]:
    infos = {name: dataset(name) for name in grid.dataset}
    return [
        CellSpec(
            dataset=name,
            data_digest=infos[name].digest,
            memory_size=memory,
            class_order=order,
            seed=grid.seed,
            method=config,
            protocol=grid.protocol,
            stream_fraction=grid.stream_fraction,
            arrival=grid.arrival,
        )
        for name, memory, method in product(grid.dataset, grid.memory, grid.method)
        for config, order in product(configs[method, name], grid.class_orders)
    ]
