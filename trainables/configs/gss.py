"""What may be set of GSS-greedy, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar

from oclgrid.trainables.configs.er import ErConfig
from oclgrid.trainables.schema import SpecError


@dataclass(frozen=True, kw_only=True, slots=True)
class GssConfig(ErConfig):
    """Defaults of GSS-greedy."""

    about: ClassVar[str] = "Aljundi et al., Gradient based Sample Selection, NeurIPS 2019"
    stores: ClassVar[str] = "exemplars and their gradient similarities"
    name: str = "gss"
    subsets: int = 10
    """Random parts of the memory an image's gradient is compared with. Reading: 10 in the
    reference's configs, 20 in its read-me."""
    subset_size: int = 10

    def __post_init__(self) -> None:
        ErConfig.__post_init__(self)
        if self.precision != "float32":  # vmap has no BatchNorm of mixed precision
            raise SpecError(f"{self.name}.precision must be float32, got {self.precision!r}")
        for field in ("subsets", "subset_size"):
            if getattr(self, field) < 1:
                raise SpecError(
                    f"{self.name}.{field} must be at least 1, got {getattr(self, field)}"
                )
