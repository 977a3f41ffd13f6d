"""What may be set of ASER, and the defaults."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from oclgrid.trainables.configs.er import ErConfig
from oclgrid.trainables.schema import SpecError


@dataclass(frozen=True, kw_only=True, slots=True)
class AserConfig(ErConfig):
    """Defaults of ASER."""

    about: ClassVar[str] = (
        "Shim et al., Online Class-Incremental Continual Learning with ASER, AAAI 2021"
    )
    name: str = "aser"
    composition: Literal["separate", "union"] = "union"
    """One pass over memory and incoming batch. The reference makes two more whose gradients it
    throws away; we do not."""
    variant: Literal["asvm", "asv", "neg_sv"] = "asvm"
    """Reading: mean of cooperative minus mean of adversarial values (its configs), maximum minus
    minimum, or minus the sum of adversarial values."""
    neighbours: int = 3
    """k of KNN. Reading: 3 in the reference's configs, 5 in its paper's text."""
    samples_per_class: int = 9
    """N_s: exemplars drawn from each class."""

    def __post_init__(self) -> None:
        ErConfig.__post_init__(self)
        if (self.replay_from, self.short_memory) != ("all", "all"):
            raise SpecError(
                f"{self.name} draws from the whole memory, as many as there are; leave "
                f"replay_from and short_memory at all"
            )
        for field in ("neighbours", "samples_per_class"):
            if getattr(self, field) < 1:
                raise SpecError(
                    f"{self.name}.{field} must be at least 1, got {getattr(self, field)}"
                )

    @classmethod
    def for_dataset(cls, dataset: str) -> dict[str, Any]:
        """Return N_s as the reference's configs have it."""
        return {"samples_per_class": {"cifar100": 2, "miniimagenet": 3}.get(dataset, 9)}
