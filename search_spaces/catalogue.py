"""The spaces by name: those in the folder ``spaces/`` and those of installed packages."""

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points

from oclgrid.search_spaces import spaces as folder
from oclgrid.search_spaces.space import Float, Space
from oclgrid.trainables.schema import SpecError, unknown
from oclgrid.trainables.spec import MethodConfig

ENTRY_POINTS = "oclgrid.spaces"
"""Under this name installed packages offer modules whose ``SPACES`` are found too."""
LEARNING_RATE = "learning-rate"
"""Name of the space that every method has."""


@cache
def all_spaces() -> dict[str, Space]:
    """Return every space that belongs to a method, by name."""
    found: dict[str, Space] = {}
    for module in pkgutil.iter_modules(folder.__path__, folder.__name__ + "."):
        found |= importlib.import_module(module.name).SPACES
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found |= point.load().SPACES
        except Exception as error:  # whatever another package's code may raise
            package = point.dist.name if point.dist else "?"
            raise SpecError(
                f"the spaces {point.name!r} of the package {package} "
                f"cannot be loaded ({type(error).__name__}: {error}); mend or uninstall it"
            ) from error
    return found


def find_space(name: str, base: MethodConfig) -> Space:
    """Return the space of that name around a config."""
    if name == LEARNING_RATE:
        rate = base.learning_rate
        return Space(base, learning_rate=Float(rate / 100, min(100.0, rate * 10), log=True))
    if name not in all_spaces():
        raise unknown("space", name, [LEARNING_RATE, *all_spaces()])
    return all_spaces()[name].on(base)
