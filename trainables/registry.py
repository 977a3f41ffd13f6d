"""The methods by name, found by walking the folder ``methods/``."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

from oclgrid.trainables import methods as folder
from oclgrid.trainables.method import Method
from oclgrid.trainables.schema import unknown
from oclgrid.trainables.spec import MethodConfig

M = TypeVar("M", bound=type[Method[Any]])


@dataclass(frozen=True, slots=True)
class Entry:
    """A method and the config class that holds its defaults."""

    config: type[MethodConfig]
    learner: type[Method[Any]]


_FOUND: dict[str, Entry] = {}


def method(config: type[MethodConfig]) -> Callable[[M], M]:
    """Register the decorated class under the name its config has by default."""

    def register(learner: M) -> M:
        name = next(f.default for f in fields(config) if f.name == "name")
        assert isinstance(name, str)
        _FOUND[name] = Entry(config, learner)
        return learner

    return register


@cache
def _walk() -> None:
    for module in pkgutil.iter_modules(folder.__path__, folder.__name__ + "."):
        importlib.import_module(module.name)


def all_methods() -> dict[str, Entry]:
    """Return every method there is, by name."""
    _walk()
    return dict(sorted(_FOUND.items()))


def find(name: str) -> Entry:
    """Return the method of that name."""
    if name not in all_methods():
        raise unknown("method", name, all_methods())
    return all_methods()[name]
