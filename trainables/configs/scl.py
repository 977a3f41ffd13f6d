"""What may be set of SCL, and the defaults."""

from dataclasses import dataclass
from typing import ClassVar

from oclgrid.trainables.configs.scr import ScrConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class SclConfig(ScrConfig):
    """Defaults of SCL: those of SCR, from which it differs in the views only."""

    about: ClassVar[str] = "Khosla et al., Supervised Contrastive Learning, NeurIPS 2020"
    name: str = "scl"
