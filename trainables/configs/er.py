"""What may be set of ER, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import MethodConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class ErConfig(MethodConfig):
    """Defaults of ER."""

    about: ClassVar[str] = "Chaudhry et al., On Tiny Episodic Memories in Continual Learning, 2019"
    name: str = "er"
    updates_per_batch: int = 8
    """I of Algorithm 1. Sec. 4.3 gives eight to methods that use a single view."""
    composition: Literal["separate", "union"] = "separate"
    """Reading: the reference adds two means from separate forward passes, so that BatchNorm sees
    incoming and memory batch apart; Algorithm 1 could also mean one pass over their union."""


def require_separate(config: ErConfig) -> None:
    """Refuse the union where a method needs the incoming batch's gradient by itself."""
    if config.composition != "separate":
        raise SpecError(f"{config.name}.composition must be separate, got {config.composition!r}")
