"""EWC++ (Chaudhry et al., 2018): hold parameters that mattered near where a stage left them."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from oclgrid.trainables.maths.fisher import (
    normalised_fisher,
    penalty,
    penalty_gradient,
    updated_fisher,
)
from oclgrid.trainables.maths.flat import flat, shaped
from oclgrid.trainables.methods.er import Er, ErConfig, require_separate
from oclgrid.trainables.registry import method
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.stream import Batch


@dataclass(frozen=True, kw_only=True, slots=True)
class EwcConfig(ErConfig):
    """Defaults of EWC++. It keeps no exemplars, so its cells have memory size 0."""

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


@method(EwcConfig)
class Ewc(Er):
    """Cross-entropy on the incoming batch plus the penalty; no memory."""

    about = "Chaudhry et al., Riemannian Walk for Incremental Learning, ECCV 2018"
    stores = "Fisher information, no exemplars"
    config: EwcConfig

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        zeros = torch.zeros_like(self._theta())
        self._fisher = {"running": zeros, "accumulated": zeros.clone(), "normalised": zeros.clone()}
        self._anchor = zeros.clone()

    def begin_stage(self, stage: int) -> None:
        """Count steps from the start of the stage."""
        super().begin_stage(stage)
        self._step_in_stage = 0

    def retrieve(self, incoming: Batch) -> Batch | None:
        """Return nothing: there is no memory."""
        return None

    def remember(self, incoming: Batch) -> None:
        """Keep nothing."""

    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Step on cross-entropy and penalty; add the squared gradient of both to the Fisher."""
        config, fisher = self.config, self._fisher
        self._step_in_stage += 1
        if self._step_in_stage % config.fisher_period == 0:
            fisher["running"] = updated_fisher(
                fisher["running"],
                fisher["accumulated"],
                alpha=config.fisher_alpha,
                period=config.fisher_period,
            )
            fisher["accumulated"] = torch.zeros_like(fisher["accumulated"])
        loss = self.loss(incoming)
        gradients = self.gradients(loss)
        vector = flat(gradients)
        if self.old_classes > 0:
            shift = self._theta() - self._anchor
            loss = loss + penalty(fisher["normalised"], shift, config.penalty_weight)
            vector = vector + penalty_gradient(fisher["normalised"], shift, config.penalty_weight)
        fisher["accumulated"] += vector**2
        self.descend(shaped(vector, gradients), loss)

    def end_stage(self) -> None:
        """Anchor the parameters where they are."""
        self._anchor = self._theta()
        self._fisher["normalised"] = normalised_fisher(self._fisher["running"])

    def _theta(self) -> Tensor:
        return flat([p.detach() for p in self.net.parameters()])

    def state(self) -> dict[str, Any]:
        """Return the base's state with the Fisher information; a stage's end fixes the rest."""
        fisher = {k: self._fisher[k] for k in ("running", "accumulated")}
        return {**super().state(), "fisher": fisher}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        super().load(state)
        self._fisher |= {k: v.to(self.device).clone() for k, v in state["fisher"].items()}
        self.end_stage()
