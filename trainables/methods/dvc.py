"""DVC (Gu et al., 2022): agree between two views, replay what the next step moves most."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from oclgrid.trainables.configs.dvc import DvcConfig
from oclgrid.trainables.maths.information import (
    last_layer_gradient,
    mutual_information,
    prediction_distance,
    view_cross_entropy,
)
from oclgrid.trainables.method import Method
from oclgrid.trainables.network import mlp
from oclgrid.trainables.registry import method
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import view
from oclgrid.trainables.virtual import after_step

Q_HIDDEN = 128


@method(DvcConfig)
class Dvc(Method[DvcConfig]):
    """Two views that should agree, and retrieval by the gradients they cause."""

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
