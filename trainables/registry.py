"""The methods by name: those in the folder ``methods/`` and those of installed packages."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from oclgrid.trainables import configs as folder
from oclgrid.trainables.schema import SpecError, unknown
from oclgrid.trainables.spec import MethodConfig

if TYPE_CHECKING:
    from oclgrid.trainables.method import Method

M = TypeVar("M", bound="type[Method[Any]]")


@dataclass(frozen=True, slots=True)
class Entry:
    """A method, by the config class that holds its defaults."""

    config: type[MethodConfig]

    @property
    def learner(self) -> "type[Method[Any]]":
        """The class that learns; importing it takes PyTorch, which configs do without."""
        if self.config not in _LEARNERS:
            importlib.import_module(self.config.__module__.replace(".configs.", ".methods."))
        return _LEARNERS[self.config]


ENTRY_POINTS = "oclgrid.methods"
"""Under this name installed packages offer modules with methods of their own."""

_LEARNERS: dict[type[MethodConfig], "type[Method[Any]]"] = {}


def method(config: type[MethodConfig]) -> Callable[[M], M]:
    """Register the decorated class as what learns with such a config."""

    def register(learner: M) -> M:
        _LEARNERS[config] = learner
        return learner

    return register


@cache
def _own() -> dict[str, Entry]:
    """Return the methods of this installation."""
    found: dict[str, Entry] = {}
    for info in pkgutil.iter_modules(folder.__path__, folder.__name__ + "."):
        module = importlib.import_module(info.name)
        classes = (v for v in vars(module).values() if isinstance(v, type))
        for config in classes:
            if issubclass(config, MethodConfig) and config.__module__ == info.name:
                found[_name(config)] = Entry(config)
    return found


@cache
def all_methods() -> dict[str, Entry]:
    """Return every method there is, by name."""
    for point in entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:  # whatever another package's code may raise
            package = point.dist.name if point.dist else "?"
            raise SpecError(
                f"the method {point.name!r} of the package {package} "
                f"cannot be loaded ({type(error).__name__}: {error}); mend or uninstall it"
            ) from error
    return dict(sorted((_own() | {_name(c): Entry(c) for c in _LEARNERS}).items()))


def find(name: str) -> Entry:
    """Return the method of that name."""
    entry = _own().get(name) or all_methods().get(name)
    if entry is None:
        raise unknown("method", name, all_methods())
    return entry


def _name(config: type[MethodConfig]) -> str:
    name = next(f.default for f in fields(config) if f.name == "name")
    assert isinstance(name, str)
    return name
