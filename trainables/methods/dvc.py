"""DVC (Gu et al., 2022): agree between two views, replay what the next step moves most."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from oclgrid.trainables.maths.information import (
    last_layer_gradient,
    mutual_information,
    prediction_distance,
    view_cross_entropy,
)
from oclgrid.trainables.method import Method
from oclgrid.trainables.network import mlp
from oclgrid.trainables.registry import method
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import MethodConfig
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import SCR, ViewSeries, view
from oclgrid.trainables.virtual import after_step

Q_HIDDEN = 128
ALWAYS_JITTERED = replace(SCR, jitter=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class DvcConfig(MethodConfig):
    """Defaults of DVC."""

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


@method(DvcConfig)
class Dvc(Method[DvcConfig]):
    """Two views that should agree, and retrieval by the gradients they cause."""

    about = "Gu et al., Not Just Selection, but Exploration (DVC), CVPR 2022"
    views_per_image = 2

    def heads(self) -> dict[str, nn.Module]:
        """Return the linear classifier and the net that joins the predictions of two views."""
        classes = self.info.classes
        return {
            "softmax": nn.Linear(self.features_out, classes),
            "joint": mlp(2 * classes, Q_HIDDEN, classes),
        }

    def receive(self, incoming: Batch) -> None:
        """Make the view that all steps on this batch share."""
        if self.config.view_draw == "batch":
            self._incoming_view = self._view(incoming.images)

    def _view(self, images: Tensor) -> Tensor:
        shared = self.config.view_draw == "batch"
        return view(self.config.views, images, self.view_rng, shared=shared)

    def retrieve(self, incoming: Batch) -> Batch | None:
        """Return the candidates whose gradient a virtual step on the incoming batch moves most."""
        if self.config.view_draw == "image":
            self._incoming_view = self._view(incoming.images)
        self._incoming_loss = self._loss(incoming, self._incoming_view)
        self._gradients = self.gradients(self._incoming_loss)
        slots = self.draw_slots(self.config.candidates)
        if len(slots) == 0:
            return None
        candidates = self.recall(slots)
        views = self._view(candidates.images)
        score = self._interference(candidates, views)
        best = score.topk(min(self.config.memory_batch_size, len(slots))).indices
        self._replay_view = views[best]
        return self.recall(slots[best.cpu()])

    @torch.no_grad()
    def _interference(self, candidates: Batch, views: Tensor) -> Tensor:
        """Return how much larger each candidate's gradient is after the virtual step.

        Both views pass through the networks together, in training mode as in the reference;
        only the images themselves are scored.
        """
        images = torch.cat([candidates.images, views])
        virtual = after_step(self.net, self._gradients, self.config.learning_rate)

        def size(call: Callable[[str, Tensor], Tensor]) -> Tensor:
            features = call("backbone", images)[: len(candidates)]
            return last_layer_gradient(call("softmax", features), features, candidates.labels)

        return size(virtual) - size(lambda part, x: self.net[part](x))

    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Step on the sum of both losses; the incoming batch's gradient is there already."""
        if replay is None:
            self.descend(self._gradients, self._incoming_loss)
            return
        loss = self._loss(replay, self._replay_view)
        total = [a + b for a, b in zip(self._gradients, self.gradients(loss), strict=True)]
        self.descend(total, self._incoming_loss + loss)

    def _loss(self, batch: Batch, views: Tensor) -> Tensor:
        """Return L_ce + L_mi + w L_dl of a batch and one view of each image."""
        logits = self.net["softmax"](self.features(torch.cat([batch.images, views])))
        z, z_view = logits.chunk(2)
        q = self.net["joint"](torch.cat([z, z_view], dim=1))
        return (
            view_cross_entropy(z, z_view, batch.labels)
            + mutual_information(z, z_view, q)
            + self.config.distance_weight * prediction_distance(z, z_view, q)
        )
