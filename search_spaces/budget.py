"""What a sweep may cost, and at what price."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

from oclgrid.trainables.schema import SpecError, unknown

T = TypeVar("T", "SweepBudget", "Price")


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What an hour costs, in whatever money; an hour of a part of a GPU costs that part."""

    core_hour: float = 0.0
    gpu_hour: float = 0.0

    def __post_init__(self) -> None:
        for name in ("core_hour", "gpu_hour"):
            if not getattr(self, name) >= 0:
                raise SpecError(f"price.{name} must not be negative, got {getattr(self, name)}")

    def of(self, core_hours: float, gpu_hours: float) -> float:
        """Return the money for so many hours."""
        return core_hours * self.core_hour + gpu_hours * self.gpu_hour


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """When to stop; what is None does not limit. A stage that has begun is still finished."""

    hours: float | None = None
    """Of one call of the command."""
    core_hours: float | None = None
    """Over all stages of the sweep's or search's cells, also those of earlier calls."""
    gpu_hours: float | None = None
    """Likewise; a quarter of a GPU for an hour counts as a quarter."""

    def __post_init__(self) -> None:
        for field in fields(self):
            amount = getattr(self, field.name)
            if amount is not None and not amount > 0:
                raise SpecError(f"budget.{field.name} must be above 0, got {amount}")

    def check_countable(self, asked: Mapping[str, float]) -> None:
        """Refuse a limit of GPU hours for trials that have no GPU."""
        if self.gpu_hours is not None and not asked.get("GPU"):
            raise SpecError("budget.gpu_hours counts nothing: a trial has no GPU; use core_hours")


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepBudget(Limits):
    """What a sweep may take."""

    money: float | None = None
    """Over all stages, at the price given."""

    def check(self, price: Price) -> None:
        """Refuse a limit in money that nothing costs."""
        if self.money is not None and price == Price():
            raise SpecError(
                "budget.money needs a price; add price: {core_hour: ...} or --price core_hour=..."
            )


def amended(plain: T, texts: Iterable[str], *, option: str) -> T:
    """Return a budget or price with the NAME=AMOUNT of the command line in it."""
    names = [field.name for field in fields(plain)]
    values = {name: getattr(plain, name) for name in names}
    for text in texts:
        name, _, amount = text.partition("=")
        if name not in names:
            raise unknown(f"name in {option}", name, names)
        try:
            values[name] = float(amount)
        except ValueError:
            raise SpecError(f"{option} must be NAME=AMOUNT, got {text!r}") from None
    return type(plain)(**values)
