"""Kill the process that reaches a chosen line; every Python below chaos imports this first."""

import functools
import os
import signal
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

ARMED = "OCLGRID_CHAOS_ARMED"
"""Names the file that holds the line at which the next process to reach it dies."""
FUNCTIONS = (
    "oclgrid.trainables.loop:Cell.run_stage",
    "oclgrid.platform.claims:Claimant.claim",
    "oclgrid.platform.claims:Claimant.give_up",
    "oclgrid.platform.cell_log:MlflowCellLog.begin",
    "oclgrid.platform.cell_log:MlflowCellLog._deliver",
    "oclgrid.platform.cell_log:MlflowCellLog._upload",
    "oclgrid.platform.cell_log:MlflowCellLog.finish",
    "oclgrid.platform.outbox:Outbox._write",
    "oclgrid.platform.store:Store.create",
    "oclgrid.platform.store:Store.describe_cell",
    "oclgrid.platform.store:Store.log_numbers",
    "oclgrid.platform.store:Store.set_tags",
    "oclgrid.platform.store:Store.set_status",
    "oclgrid.platform.store:Store.delete",
    "oclgrid.platform.run:_Filing.prepare",
    "oclgrid.platform.run:_Filing.close",
    "oclgrid.platform.run:_Filing._file_group",
    "oclgrid.platform.run:_Filing._upload",
)
LINES = [f"{when} {function}" for function in FUNCTIONS for when in ("before", "after")]
"""Between any two lasting effects of a worker or a command."""


def reached(line: str) -> None:
    """Kill this process if it is the first to reach the armed line."""
    armed = Path(os.environ[ARMED])
    try:
        if armed.read_text("ascii") != line:
            return
        armed.unlink()
    except FileNotFoundError:  # none is armed, or another process was faster
        return
    os.kill(os.getpid(), signal.SIGKILL)


def watched(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return the function, with a line before and one after it."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        reached(f"before {name}")
        result = function(*arguments, **options)
        reached(f"after {name}")
        return result

    return call


class Watch(MetaPathFinder):
    """Finds the modules of our functions as others do, and watches them once they are loaded."""

    modules = frozenset(name.split(":")[0] for name in FUNCTIONS)

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """Return how to load a module that holds one of our functions."""
        if fullname not in self.modules:
            return None
        others = (f for f in sys.meta_path if f is not self)
        spec = next(s for f in others if (s := f.find_spec(fullname, path, target)))
        loader: Any = spec.loader
        load = loader.exec_module
        loader.exec_module = lambda module: (load(module), self._watch(module))
        return spec

    def _watch(self, module: ModuleType) -> None:
        for name in FUNCTIONS:
            where, _, path = name.partition(":")
            if where == module.__name__:
                owner, method = path.split(".")
                holder = getattr(module, owner)
                setattr(holder, method, watched(getattr(holder, method), name))


if ARMED in os.environ:
    sys.meta_path.insert(0, Watch())
