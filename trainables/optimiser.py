"""SGD as torch computes it, without torch's Optimizer.

Making one of those loads torch's compiler, which takes every worker seconds and 80 MB.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd


class Sgd:
    """Steps against the gradients of parameters; those without a gradient stay as they are."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        rate: float,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        self._parameters = list(parameters)
        self._rate, self._momentum, self._weight_decay = rate, momentum, weight_decay
        self._velocities: list[Tensor | None] = [None] * len(self._parameters)

    def forget_gradients(self) -> None:
        """Have the next backward pass begin anew."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters."""
        moving = {i: p for i, p in enumerate(self._parameters) if p.grad is not None}
        velocities = [self._velocities[i] for i in moving]
        sgd(
            list(moving.values()),
            [p.grad for p in moving.values() if p.grad is not None],
            velocities,
            lr=self._rate,
            momentum=self._momentum,
            weight_decay=self._weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
        for i, velocity in zip(moving, velocities, strict=True):
            self._velocities[i] = velocity

    def state(self) -> dict[str, Any]:
        """Return what the next step needs, under the names that torch's Optimizer has for it."""
        known = {i: v for i, v in enumerate(self._velocities) if v is not None}
        return {"state": {i: {"momentum_buffer": v} for i, v in known.items()}}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned, or what an Optimizer did."""
        self._velocities = [None] * len(self._parameters)
        for i, kept in state["state"].items():
            velocity = kept["momentum_buffer"]
            if velocity is not None:
                velocity = velocity.to(self._parameters[i].device, copy=True)
            self._velocities[i] = velocity
