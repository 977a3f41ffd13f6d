"""A search: which space to look through, around which cell, by which objective and budget."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from oclgrid.search_spaces.budget import Limits
from oclgrid.search_spaces.catalogue import find_space
from oclgrid.search_spaces.space import Choice, Float, Int, Point, Range, Space
from oclgrid.search_spaces.sweep import Resources
from oclgrid.search_spaces.yaml_file import read_yaml
from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.decoded import UNDECODED, known_digest
from oclgrid.trainables.registry import find
from oclgrid.trainables.schema import SpecError, build, shown, unknown
from oclgrid.trainables.spec import CellSpec, MethodConfig

SEARCHES = Path(__file__).parent / "searches"
MAX_GRID = 10_000
Number = Literal["A", "E", "F", "beta"]
SMALLER_IS_BETTER = ("F",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Around:
    """The cell that is varied, once for each class order."""

    dataset: str
    memory: int
    method: str
    orders: int | tuple[int, ...] = 1
    """How many class orders (0, 1, ...), or which; the objective is the mean over them."""
    seed: int = 0
    protocol: Literal["validation", "test"] = "validation"
    stream_fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.protocol != "validation":
            raise SpecError(
                "cell.protocol must be validation: a search that sees the test set proves nothing; "
                "`oclgrid tune SEARCH --confirm` tests what it found"
            )
        if isinstance(self.orders, int) and not 1 <= self.orders <= 1000:
            raise SpecError(f"cell.orders must lie in [1, 1000], got {self.orders}")

    @property
    def class_orders(self) -> tuple[int, ...]:
        """The class orders, as numbers, each once."""
        if isinstance(self.orders, int):
            return tuple(range(self.orders))
        return tuple(dict.fromkeys(self.orders))


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget(Limits):
    """What a search may take."""

    trials: int | None = None
    """Points that are finished or pruned, the paper's among them."""

    def __post_init__(self) -> None:
        if self.trials is not None and not 1 <= self.trials <= 100_000:
            raise SpecError(f"budget.trials must lie in [1, 100000], got {self.trials}")
        Limits.__post_init__(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruning:
    """Successive halving on stages: at each rung only the better part goes on."""

    after: int = 3
    """Stages before the first rung; the next are this times ``factor``, ``factor``^2, ..."""
    factor: int = 2
    """One in so many goes on."""

    def __post_init__(self) -> None:
        for name, least in (("after", 1), ("factor", 2)):
            if not least <= getattr(self, name) <= 1000:
                raise SpecError(
                    f"pruning.{name} must lie in [{least}, 1000], got {getattr(self, name)}"
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Content:
    """The keys of a search file, but for the space and the overrides."""

    search: str
    cell: Around
    about: str = ""
    objective: tuple[Number, ...] = ("A",)
    sampler: Literal["tpe", "gp", "cmaes", "random", "grid"] = "tpe"
    sampler_seed: int = 0
    grid_points: int = 5
    """Values of each number in a grid."""
    budget: Budget = field(default_factory=Budget)
    pruning: Pruning | Literal[False] | None = None
    """Halving by default; with several objectives there is none."""
    resources: Resources = field(default_factory=Resources)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}", self.search):
            raise SpecError(
                "search must be up to 48 letters, digits and any of . _ -, "
                f"got {shown(self.search)}"
            )
        if len(set(self.objective)) < len(self.objective):
            raise SpecError(f"objective must not name a number twice, got {shown(self.objective)}")
        if len(self.objective) > 1 and self.pruning:
            raise SpecError("pruning needs a single objective; leave one of the two out")
        if len(self.objective) > 1 and self.sampler == "cmaes":
            raise SpecError("sampler cmaes needs a single objective; choose tpe, gp or random")
        if not 2 <= self.grid_points <= 1000:
            raise SpecError(f"grid_points must lie in [2, 1000], got {self.grid_points}")
        if not 0 <= self.sampler_seed < 2**32:
            raise SpecError(f"sampler_seed must lie in [0, 2^32), got {self.sampler_seed}")
        if self.budget == Budget() and self.sampler != "grid":
            raise SpecError("budget must limit trials, hours, core_hours or gpu_hours; add one")


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """A search, every part of it checked."""

    name: str
    about: str
    space: Space
    around: CellSpec
    """The paper's point in the first class order."""
    orders: tuple[int, ...]
    objectives: tuple[Number, ...]
    sampler: str
    sampler_seed: int
    grid_points: int
    budget: Budget
    pruning: Pruning | None
    resources: Resources
    text: str = ""
    """The file it was read from."""

    def cells(self, point: Point) -> tuple[CellSpec, ...]:
        """Return the cells of a point, one for each class order."""
        method = self.space.config(point)
        return tuple(replace(self.around, class_order=o, method=method) for o in self.orders)

    @property
    def steps(self) -> int:
        """Stages of a whole trial: all stages of all its class orders."""
        return len(self.orders) * dataset(self.around.dataset).stages

    @property
    def study(self) -> str:
        """Name of the study: what is searched, and how it is judged, decide it.

        Budget, pruning and resources do not: the same study can go on with more of them.
        """
        content: dict[str, Any] = {
            "cell": self.around.resolved,
            "orders": self.orders,
            "space": self.space.plain,
            "objectives": self.objectives,
            "sampler": [self.sampler, self.sampler_seed],
        }
        if self.sampler == "grid":
            content["grid_points"] = self.grid_points
        text = json.dumps(content, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def read_search(name_or_file: str, *, method: str | None = None) -> Search:
    """Return the search of a preset's name or of a YAML file, for another method if asked."""
    path = Path(name_or_file)
    if path.suffix not in (".yaml", ".yml") and "/" not in name_or_file:
        path = SEARCHES / f"{name_or_file}.yaml"
        if name_or_file not in searches():
            raise unknown("search", name_or_file, searches())
    data = read_yaml(path)
    if method is not None and isinstance(data, Mapping) and isinstance(data.get("cell"), Mapping):
        data = {**data, "cell": {**data["cell"], "method": method}}
    search = parse_search(data, where=path.name)
    return replace(search, text=path.read_text(encoding="utf-8"))


def searches() -> list[str]:
    """Return the names of the searches that ship with the installation."""
    return sorted(p.stem for p in SEARCHES.glob("*.yaml"))


def parse_search(data: object, *, where: str) -> Search:
    """Return the search that plain data describes, every part of it checked."""
    if not isinstance(data, Mapping):
        raise SpecError(f"{where} must be a mapping with search, space and cell, got {shown(data)}")
    apart = ("space", "overrides")
    known = [*apart, *(f.name for f in fields(_Content))]
    for key in data:
        if key not in known:
            raise unknown(f"key of {where}", key, known)
    rest = {k: v for k, v in data.items() if k not in apart}
    content = build(_Content, rest, where=where)
    if "space" not in data:
        raise SpecError(f"{where}: space is missing; add it")
    base = _config(content.cell, data.get("overrides", {}))
    space = _space(data["space"], base)
    if content.sampler == "grid":
        _check_grid(space, content)
    pruning = content.pruning
    if pruning is None and len(content.objective) == 1:
        pruning = Pruning()
    info, orders = dataset(content.cell.dataset), content.cell.class_orders
    return Search(
        name=content.search,
        about=content.about,
        space=space,
        around=CellSpec(
            dataset=info.name,
            data_digest=info.digest,
            memory_size=content.cell.memory,
            class_order=orders[0],
            seed=content.cell.seed,
            method=base,
            protocol="validation",
            stream_fraction=content.cell.stream_fraction,
        ),
        orders=orders,
        objectives=content.objective,
        sampler=content.sampler,
        sampler_seed=content.sampler_seed,
        grid_points=content.grid_points,
        budget=content.budget,
        pruning=pruning or None,
        resources=content.resources,
    )


def on_data(search: Search, root: Path) -> Search:
    """Return the search around a cell of the data decoded below a folder, as ``sweep.on_data``."""
    around = search.around
    if around.data_digest != UNDECODED:
        return search
    digest = known_digest(dataset(around.dataset), root)
    return replace(search, around=replace(around, data_digest=digest))


def _config(cell: Around, overrides: object) -> MethodConfig:
    config: Any = find(cell.method).config
    if isinstance(overrides, Mapping) and "name" in overrides:
        raise SpecError("overrides.name cannot be changed; remove it")
    base = config(**config.for_dataset(cell.dataset))
    made: MethodConfig = build(config, overrides, where="overrides", base=base)
    return made


def _space(data: object, base: MethodConfig) -> Space:
    if isinstance(data, str):
        return find_space(data, base)
    if not isinstance(data, Mapping):
        raise SpecError(f"space must be a name or map parameters to ranges, got {shown(data)}")
    if not all(isinstance(name, str) for name in data):
        raise SpecError("space must name its parameters by texts")
    return Space(base, **{name: _range(name, plain) for name, plain in data.items()})


def _range(name: str, plain: object) -> Range:
    """Return a range written as a list of options or as a mapping."""
    where = f"space.{name}"
    if isinstance(plain, list):
        plain = {"options": plain}
    if not isinstance(plain, Mapping):
        raise SpecError(
            f"{where} must be a list of options or a mapping with low and high, got {shown(plain)}"
        )
    kind: Any = Choice if "options" in plain else Int if plain.get("whole") is True else Float
    made: Range = build(
        kind, {k: v for k, v in plain.items() if k not in ("when", "whole")}, where=where
    )
    when = plain.get("when")
    if when is None:
        return made
    if not isinstance(when, Mapping) or len(when) != 1:
        raise SpecError(f"{where}.when must map one parameter to a value, got {shown(when)}")
    return replace(made, when=next(iter(when.items())))


def _check_grid(space: Space, content: _Content) -> None:
    for count, _ in enumerate(space.grid(content.grid_points)):
        if count >= MAX_GRID:
            raise SpecError(f"a grid must not exceed {MAX_GRID} points; lower grid_points")
