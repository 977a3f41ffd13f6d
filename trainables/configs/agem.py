"""What may be set of A-GEM, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from oclgrid.trainables.configs.er import ErConfig, require_separate


@dataclass(frozen=True, kw_only=True, slots=True)
class AgemConfig(ErConfig):
    """Defaults of A-GEM."""

    about: ClassVar[str] = "Chaudhry et al., Efficient Lifelong Learning with A-GEM, ICLR 2019"
    name: str = "agem"
    memory_from: Literal["second-stage", "start"] = "second-stage"
    """Reading: the reference leaves the memory alone in the first stage; Algorithm 1 could also
    use it as soon as it holds something."""

    def __post_init__(self) -> None:
        ErConfig.__post_init__(self)
        require_separate(self)
