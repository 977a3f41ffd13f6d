"""EWC++ (Chaudhry et al., 2018): hold parameters that mattered near where a stage left them."""

from typing import Any

import torch
from torch import Tensor

from oclgrid.trainables.configs.ewc import EwcConfig
from oclgrid.trainables.maths.fisher import (
    normalised_fisher,
    penalty,
    penalty_gradient,
    updated_fisher,
)
from oclgrid.trainables.maths.flat import flat, shaped
from oclgrid.trainables.methods.er import Er
from oclgrid.trainables.registry import method
from oclgrid.trainables.stream import Batch


@method(EwcConfig)
class Ewc(Er):
    """Cross-entropy on the incoming batch plus the penalty; no memory."""

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
