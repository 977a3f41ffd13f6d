"""What may be set of DualNet, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar

from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import SCR, ViewSeries
from oclgrid.trainables.spec import MethodConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class DualnetConfig(MethodConfig):
    """Defaults of DualNet, from its task-free script where the equal-cost rule leaves them."""

    about: ClassVar[str] = "Pham et al., DualNet: Continual Learning, Fast and Slow, NeurIPS 2021"
    views_per_image: ClassVar[int] = 2
    stores: ClassVar[str] = "exemplars and their logits"
    name: str = "dualnet"
    updates_per_batch: int = 4
    """I of Algorithm 1: fast steps, and as many slow ones before them."""
    learning_rate: float = 0.03
    """Of the fast steps, which move all parameters."""
    slow_rate: float = 3e-4
    """Of the slow, self-supervised steps."""
    look_ahead: float = 0.05
    """beta: share of the slow steps' way that is kept."""
    distillation_weight: float = 10.0
    """rho."""
    temperature: float = 2.0
    """Of the distillation."""
    views: ViewSeries = SCR
    first_stage_replay: bool = True
    """Reading: DualNet's code replays from the second stage on, which would train 120 images per
    batch in the first; the rule of equal cost asks for 160 in every stage."""

    def __post_init__(self) -> None:
        MethodConfig.__post_init__(self)
        if self.feature_pool != "global":
            raise SpecError(f"{self.name}.feature_pool must be global, got {self.feature_pool!r}")
        if self.classifier != "softmax":
            raise SpecError(f"{self.name}.classifier must be softmax, got {self.classifier!r}")
        if self.batch_size < 2:
            raise SpecError(f"{self.name}.batch_size must be at least 2, got {self.batch_size}")
        for field, high in (("slow_rate", 100), ("temperature", 1000)):
            if not 0 < getattr(self, field) <= high:
                raise SpecError(
                    f"{self.name}.{field} must lie in (0, {high}], got {getattr(self, field)}"
                )
        for field, high in (("look_ahead", 1), ("distillation_weight", 1000)):
            if not 0 <= getattr(self, field) <= high:
                raise SpecError(
                    f"{self.name}.{field} must lie in [0, {high}], got {getattr(self, field)}"
                )
