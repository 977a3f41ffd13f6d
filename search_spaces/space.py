"""What may vary: ranges beside the paper's values, as data."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, TypeAlias

from oclgrid.trainables.schema import SpecError, build, shown, unknown
from oclgrid.trainables.series import ViewSeries, scaled
from oclgrid.trainables.spec import MethodConfig

Value: TypeAlias = int | float | str | bool
Point: TypeAlias = Mapping[str, Value]
"""A value for every parameter that exists there, by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Range:
    """What the three kinds of range share."""

    default: Value | None = None
    """The paper's value; None takes it from the fields that are set."""
    sets: tuple[str, ...] = ()
    """Fields that all get the value; none means the field of the parameter's own name."""
    scales: str = ""
    """Field with a series of views that is scaled by the value (``views.scaled``)."""
    when: tuple[str, Value] | None = None
    """Parameter, declared earlier, and the value it must have for this one to exist."""


@dataclass(frozen=True, slots=True)
class Float(_Range):
    """Numbers from ``low`` to ``high``, evenly or, with ``log``, evenly in their logarithm."""

    low: float
    high: float
    log: bool = False

    @property
    def ends(self) -> tuple[Value, ...]:
        """Values to try on a config before anything starts."""
        return self.low, self.high

    def holds(self, value: object) -> bool:
        """Return whether the value lies in the range."""
        is_number = isinstance(value, float | int) and not isinstance(value, bool)
        return is_number and self.low <= float(value) <= self.high  # type: ignore[arg-type]

    def grid(self, points: int) -> list[Value]:
        """Return that many values, both ends among them, spread as the range is."""
        forth, back = (math.log, math.exp) if self.log else (float, float)
        low, high = forth(self.low), forth(self.high)
        inner = [back(low + i * (high - low) / (points - 1)) for i in range(1, points - 1)]
        return [self.low, *inner, self.high]

    def check(self, name: str) -> None:
        """Refuse a range that is empty, endless, or has no logarithm."""
        if not all(_is_number(v) for v in (self.low, self.high)):
            raise SpecError(f"space.{name} must lie between two finite numbers, got {self._told}")
        if not self.low < self.high:
            raise SpecError(f"space.{name}: low must be below high, got {self._told}")
        if self.log and self.low <= 0:
            raise SpecError(f"space.{name}: low must be above 0 where log is true, got {self.low}")

    @property
    def _told(self) -> str:
        return f"{shown(self.low)} and {shown(self.high)}"


@dataclass(frozen=True, slots=True)
class Int(Float):
    """Whole numbers from ``low`` to ``high``."""

    low: int
    high: int

    def holds(self, value: object) -> bool:
        """Return whether the value is whole and lies in the range."""
        return isinstance(value, int) and Float.holds(self, value)

    def grid(self, points: int) -> list[Value]:
        """Return up to that many whole numbers, both ends among them."""
        return sorted({round(float(v)) for v in Float.grid(self, points)})

    def check(self, name: str) -> None:
        """Refuse also ends that are not whole."""
        if not all(type(v) is int for v in (self.low, self.high)):
            raise SpecError(f"space.{name} must lie between two whole numbers, got {self._told}")
        Float.check(self, name)


@dataclass(frozen=True, slots=True)
class Choice(_Range):
    """One of several values."""

    options: tuple[Value, ...]

    @property
    def ends(self) -> tuple[Value, ...]:
        """Values to try on a config before anything starts: all of them."""
        return self.options

    def holds(self, value: object) -> bool:
        """Return whether the value is among the options."""
        return any(type(value) is type(o) and value == o for o in self.options)

    def grid(self, points: int) -> list[Value]:
        """Return all options, however many points were asked for."""
        del points
        return list(self.options)

    def check(self, name: str) -> None:
        """Refuse a choice without a choice."""
        if not all(isinstance(o, float | int | str | bool) for o in self.options):
            raise SpecError(f"space.{name}: options must be numbers, texts, true or false")
        if len(set(map(repr, self.options))) < max(2, len(self.options)):
            raise SpecError(f"space.{name} must have two options or more, all different")


Range: TypeAlias = Float | Int | Choice


class Space:
    """Ranges around a config, whose own values are the reference point."""

    def __init__(self, base: MethodConfig, **ranges: Range) -> None:
        """Check every range against the config.

        Args:
            base: The config that is varied; fields without a range stay as they are.
            ranges: By field, its symbol in the paper, or dotted for a field of a field.
                A choice that is no field only decides which parameters exist (``when``).
        """
        if not ranges:
            raise SpecError("space must have at least one parameter, got none")
        self.base = base
        self.ranges = {_symbol(base, name): r for name, r in ranges.items()}
        for name, range_ in self.ranges.items():
            self._check(name, range_)
        self.reference: dict[str, Value] = {}
        for name, range_ in self.ranges.items():
            self._check_default(name, range_)
            if self._exists(range_, self.reference):
                self.reference[name] = self._default(name, range_)
        if self.config(self.reference) != base:
            raise SpecError(
                f"space: the default of {self._moved()} must be that of {base.name}; leave it out"
            )
        for name, range_ in self.ranges.items():
            for value in range_.ends:
                self.config({**self._where(range_), name: value})

    def on(self, base: MethodConfig) -> "Space":
        """Return the same ranges around another config."""
        return Space(base, **self.ranges)

    def existing(self, point: Point) -> Iterator[tuple[str, Range]]:
        """Yield the parameters that exist at a point, in an order in which they can be chosen."""
        for name, range_ in self.ranges.items():
            if self._exists(range_, point):
                yield name, range_

    def config(self, point: Point) -> MethodConfig:
        """Return the config at a point."""
        changes: dict[str, Any] = {}
        for name, value in point.items():
            range_ = self.ranges[name]
            if range_.scales:
                changes[range_.scales] = self._scaled(name, float(value))
                continue
            for path in self._sets(name, range_):
                head, _, rest = path.partition(".")
                if rest:
                    changes.setdefault(head, {})[rest] = value
                else:
                    changes[head] = value
        return build(type(self.base), changes, where=f"space of {self.base.name}", base=self.base)

    def _scaled(self, name: str, strength: float) -> dict[str, float]:
        try:
            return asdict(scaled(getattr(self.base, self.ranges[name].scales), strength))
        except ValueError as error:
            raise SpecError(f"space.{name} cannot be {strength}: {error}") from error

    def grid(self, points: int) -> Iterator[dict[str, Value]]:
        """Yield every combination of values, with so many for each number."""
        yield from self._grid(list(self.ranges.items()), {}, points)

    def _grid(
        self, left: list[tuple[str, Range]], point: dict[str, Value], points: int
    ) -> Iterator[dict[str, Value]]:
        if not left:
            yield point
            return
        (name, range_), *rest = left
        if not self._exists(range_, point):
            yield from self._grid(rest, point, points)
            return
        for value in range_.grid(points):
            yield from self._grid(rest, {**point, name: value}, points)

    @property
    def plain(self) -> dict[str, Any]:
        """The ranges as plain data; what tells one space from another."""
        return {n: {"kind": type(r).__name__, **asdict(r)} for n, r in self.ranges.items()}

    def _exists(self, range_: Range, point: Point) -> bool:
        return range_.when is None or point.get(range_.when[0]) == range_.when[1]

    def _where(self, range_: Range) -> dict[str, Value]:
        """Return a point at which the parameter exists."""
        if range_.when is None:
            return {}
        name, value = range_.when
        return {**self._where(self.ranges[name]), name: value}

    def _sets(self, name: str, range_: Range) -> tuple[str, ...]:
        if range_.sets or self._is_switch(name):
            return range_.sets
        return (name,)

    def _is_switch(self, name: str) -> bool:
        return any(r.when is not None and r.when[0] == name for r in self.ranges.values())

    def _check(self, name: str, range_: Range) -> None:
        range_.check(name)
        if range_.when is not None:
            switch, value = range_.when
            earlier = list(self.ranges)[: list(self.ranges).index(name)]
            if switch not in earlier:
                raise unknown(f"parameter in space.{name}.when", switch, earlier)
            if not self.ranges[switch].holds(value):
                raise SpecError(f"space.{name}.when: {switch} cannot be {shown(value)}")
        if range_.scales:
            if not isinstance(_find(self.base, range_.scales, name), ViewSeries):
                raise SpecError(f"space.{name}.scales must name a series of views")
        else:
            for path in self._sets(name, range_):
                _find(self.base, path, name)

    def _default(self, name: str, range_: Range) -> Value:
        """Return the paper's value of a parameter."""
        if range_.default is not None:
            return range_.default
        if range_.scales:
            return 1.0
        values = {_find(self.base, path, name) for path in self._sets(name, range_)}
        if len(values) != 1:
            raise SpecError(f"space.{name} needs a default; add it")
        value: Value = values.pop()
        return value

    def _check_default(self, name: str, range_: Range) -> None:
        default = self._default(name, range_)
        if not range_.holds(default):
            raise SpecError(
                f"space.{name} must hold the default of {self.base.name}, {shown(default)}; "
                f"widen it"
            )

    def _moved(self) -> str:
        moved = (n for n, v in self.reference.items() if self.config({n: v}) != self.base)
        return ", ".join(moved)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


def _symbol(base: MethodConfig, name: str) -> str:
    """Return a field's symbol in the paper, if it has one, else the name as it is."""
    symbols = {f.name: str(f.metadata.get("paper", f.name)) for f in fields(base)}
    return symbols.get(name, name)


def _find(base: object, path: str, parameter: str) -> Any:
    """Return the value of a field, or of a field of a field."""
    head, _, rest = path.partition(".")
    known = {f.metadata.get("paper", f.name): f.name for f in fields(base)}  # type: ignore[arg-type]
    if head not in known or head == "name":
        raise unknown(f"field in space.{parameter}", head, known)
    value = getattr(base, known[head])
    if not rest:
        return value
    if not is_dataclass(value):
        raise SpecError(f"space.{parameter}: {head} has no fields, so {path} cannot be varied")
    return _find(value, rest, parameter)
