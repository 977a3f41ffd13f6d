"""What may be set of MIR, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar

from oclgrid.trainables.configs.er import ErConfig, require_separate
from oclgrid.trainables.schema import SpecError


@dataclass(frozen=True, kw_only=True, slots=True)
class MirConfig(ErConfig):
    """Defaults of MIR."""

    about: ClassVar[str] = (
        "Aljundi et al., Online Continual Learning with Maximally Interfered Retrieval, 2019"
    )
    name: str = "mir"
    candidates: int = 50
    """Exemplars drawn and scored for each step."""

    def __post_init__(self) -> None:
        ErConfig.__post_init__(self)
        require_separate(self)
        if self.candidates < self.memory_batch_size:
            raise SpecError(
                f"{self.name}.candidates must not be below memory_batch_size, got {self.candidates}"
            )
