"""What may be set of EWC++, and the defaults."""

from dataclasses import dataclass, field
from typing import ClassVar

from oclgrid.trainables.configs.er import ErConfig, require_separate
from oclgrid.trainables.schema import SpecError


@dataclass(frozen=True, kw_only=True, slots=True)
class EwcConfig(ErConfig):
    """Defaults of EWC++. It keeps no exemplars, so its cells have memory size 0."""

    about: ClassVar[str] = "Chaudhry et al., Riemannian Walk for Incremental Learning, ECCV 2018"
    stores: ClassVar[str] = "Fisher information, no exemplars"
    name: str = "ewc"
    penalty_weight: float = field(default=1.0, metadata={"paper": "ewc_lambda"})
    """Reading: the reference publishes 0, which is fine-tuning, and shows 100, which diverges at
    rate 0.1; 1 is a real regulariser and stable."""
    fisher_alpha: float = 0.9
    """Weight of the newest period in the running Fisher information."""
    fisher_period: int = 50
    """Training steps between its updates."""

    def __post_init__(self) -> None:
        ErConfig.__post_init__(self)
        require_separate(self)
        if self.classifier != "softmax":
            raise SpecError(f"{self.name}.classifier must be softmax: it keeps no exemplars")
        if not 0 <= self.penalty_weight <= 1e6:
            raise SpecError(
                f"{self.name}.ewc_lambda must lie in [0, 1000000], got {self.penalty_weight}"
            )
        if not 0 <= self.fisher_alpha <= 1:
            raise SpecError(f"{self.name}.fisher_alpha must lie in [0, 1], got {self.fisher_alpha}")
        if self.fisher_period < 1:
            raise SpecError(
                f"{self.name}.fisher_period must be at least 1, got {self.fisher_period}"
            )
