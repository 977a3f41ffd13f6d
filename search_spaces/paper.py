"""The numbers the paper prints, read from ``paper.yaml``; accuracies in [0, 1] as everywhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from oclgrid.search_spaces.yaml_file import read_yaml
from oclgrid.trainables.schema import SpecError

FILE = Path(__file__).parent / "paper.yaml"
SETTING = ("cifar10", 500)
"""Dataset and memory size of the stage-wise table, CKA and OOD."""
PERCENT = ("E", "E_std", "A", "A_std", "stages", "ood")
BY_CELL = ("E", "E_std", "A", "A_std", "F", "beta")
BY_METHOD = ("stages", "cka", "ood")


@dataclass(frozen=True, slots=True)
class Printed:
    """A number of the paper, with its standard deviation where that is known."""

    mean: float
    std: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Where the paper disagrees with itself or is unclear."""

    about: str
    method: str | None
    text: str


class Paper:
    """What the paper prints; None where we know of no number."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self.orders: int = data["orders"]
        """Class orders behind each number."""
        self.notes = [Note(n["about"], n.get("method"), n["text"]) for n in data["notes"]]

    def number(self, name: str, *, dataset: str, memory: int, method: str) -> Printed | None:
        """Return E, A, F or beta of a method, with its spread where that is known."""
        mean = self._value(name, dataset, memory, method)
        if mean is None:
            return None
        return Printed(mean, self._value(f"{name}_std", dataset, memory, method))

    def stages(self, method: str) -> list[float] | None:
        """Return the accuracy after each stage, in the setting the paper gives it for."""
        values = self._data["stages"].get(method)
        return None if values is None else [_fraction("stages", v) for v in values]

    def analysis(self, name: str, method: str) -> dict[str, float]:
        """Return the numbers of an analysis by key, such as mnist of ood."""
        values = self._data.get(name, {}).get(method, {}) if name in ("cka", "ood") else {}
        return {key: _fraction(name, value) for key, value in values.items()}

    def notes_on(self, names: tuple[str, ...], method: str) -> list[str]:
        """Return what is to be said about these numbers of a method."""
        return [n.text for n in self.notes if n.about in names and n.method in (None, method)]

    def _value(self, name: str, dataset: str, memory: int, method: str) -> float | None:
        entry = self._data.get(name, {}).get(dataset, {}).get(method)
        if isinstance(entry, list):
            entry = dict(zip(self._data["memory"][dataset], entry, strict=True))
        if isinstance(entry, Mapping):
            entry = entry.get(memory)
        return None if entry is None else _fraction(name, entry)


def _fraction(name: str, value: float) -> float:
    """Return a printed number as a fraction, without the last bits that dividing adds."""
    return round(value / 100, 4) if name in PERCENT else value


@cache
def paper() -> Paper:
    """Return the paper's numbers, checked."""
    data = read_yaml(FILE)
    check(data)
    return Paper(data)


def check(data: Mapping[str, Any]) -> None:
    """Refuse numbers out of range, lists of the wrong length and memory sizes not in the paper."""
    for name in BY_CELL:
        for dataset, methods in data[name].items():
            sizes = data["memory"][dataset]
            for method, entry in methods.items():
                where = f"{FILE.name}: {name}.{dataset}.{method}"
                if isinstance(entry, list) and len(entry) != len(sizes):
                    raise SpecError(f"{where} must have {len(sizes)} values, got {len(entry)}")
                if isinstance(entry, Mapping) and not set(entry) <= set(sizes):
                    raise SpecError(f"{where} must be of memory sizes {sizes}, got {list(entry)}")
                _check_range(where, name, entry)
    for name in BY_METHOD:
        for method, entry in data[name].items():
            _check_range(f"{FILE.name}: {name}.{method}", name, entry)


def _check_range(where: str, name: str, entry: Any) -> None:
    values = entry.values() if isinstance(entry, Mapping) else entry
    for value in values if not isinstance(entry, int | float) else [entry]:
        limit = 100 if name in PERCENT else 1
        if not isinstance(value, int | float) or not 0 <= value <= limit:
            raise SpecError(f"{where} must lie in [0, {limit}], got {value!r}")
