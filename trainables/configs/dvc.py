"""What may be set of DVC, and the defaults."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import SCR, ViewSeries
from oclgrid.trainables.spec import MethodConfig

ALWAYS_JITTERED = replace(SCR, jitter=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class DvcConfig(MethodConfig):
    """Defaults of DVC."""

    about: ClassVar[str] = "Gu et al., Not Just Selection, but Exploration (DVC), CVPR 2022"
    views_per_image: ClassVar[int] = 2
    name: str = "dvc"
    updates_per_batch: int = 4
    """I of Algorithm 1. Sec. 4.3 gives four to methods that use two views."""
    candidates: int = 50
    """Exemplars drawn and scored for each step."""
    distance_weight: float = 4.0
    """Of the distance between joint and single predictions."""
    views: ViewSeries = ALWAYS_JITTERED
    view_draw: Literal["batch", "image"] = "batch"
    """Reading: the reference's transform draws once for a whole batch, and views of the incoming
    batch are made once for all its steps; "image" draws for each image and each step."""

    def __post_init__(self) -> None:
        MethodConfig.__post_init__(self)
        if self.candidates < self.memory_batch_size:
            raise SpecError(
                f"{self.name}.candidates must not be below memory_batch_size, got {self.candidates}"
            )
        if not 0 <= self.distance_weight <= 1000:
            raise SpecError(
                f"{self.name}.distance_weight must lie in [0, 1000], got {self.distance_weight}"
            )

    @classmethod
    def for_dataset(cls, dataset: str) -> dict[str, Any]:
        """Return the weight of the distance loss as the reference has it."""
        return {"distance_weight": 2.0 if dataset in ("cifar10", "digits") else 4.0}
