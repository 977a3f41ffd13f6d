"""The methods by name: those in the folder ``methods/`` and those of installed packages."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from oclgrid.trainables import methods as folder
from oclgrid.trainables.method import Method
from oclgrid.trainables.schema import SpecError, unknown
from oclgrid.trainables.spec import MethodConfig

M = TypeVar("M", bound=type[Method[Any]])


@dataclass(frozen=True, slots=True)
class Entry:
    """A method and the config class that holds its defaults."""

    config: type[MethodConfig]
    learner: type[Method[Any]]


ENTRY_POINTS = "oclgrid.methods"
"""Under this name installed packages offer modules with methods of their own."""

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
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # whatever another package's code may raise
            package = point.dist.name if point.dist else "?"
            raise SpecError(
                f"the method {point.name!r} of the package {package} "
                f"cannot be loaded ({type(error).__name__}: {error}); mend or uninstall it"
            ) from error


def all_methods() -> dict[str, Entry]:
    """Return every method there is, by name."""
    _walk()
    return dict(sorted(_FOUND.items()))


def find(name: str) -> Entry:
    """Return the method of that name."""
    if name not in all_methods():
        raise unknown("method", name, all_methods())
    return all_methods()[name]
