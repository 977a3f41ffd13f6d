"""DualNet (Pham et al., 2021): a slow self-supervised net, modulated by a fast supervised one."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oclgrid.trainables.configs.dualnet import DualnetConfig
from oclgrid.trainables.maths.decorrelation import barlow_twins, distillation
from oclgrid.trainables.method import Method
from oclgrid.trainables.network import WIDTH, DualBackbone, Features
from oclgrid.trainables.optimiser import Sgd
from oclgrid.trainables.predictor import evaluating
from oclgrid.trainables.registry import method
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import view

PROJECTOR_HIDDEN = 256


@method(DualnetConfig)
class Dualnet(Method[DualnetConfig]):
    """Barlow Twins on the slow net with look-ahead; then cross-entropy, replay and distillation."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._slow_parts = [self._dual.slow, self.net["projector"]]
        slow = [p for part in self._slow_parts for p in part.parameters()]
        self._slow_optimiser = Sgd(slow, self.config.slow_rate)
        self._logits = torch.zeros(self.memory.size, self.info.classes)
        self._logits_of = torch.full((self.memory.size,), -1)
        """Training-set position of the image whose logits a slot holds; -1 for none."""

    def backbone(self, options: dict[str, Any]) -> Features:
        """Return the slow net with the fast one around it."""
        return DualBackbone(**options)

    def heads(self) -> dict[str, nn.Module]:
        """Return the classifier and the projector of the slow features."""
        width = WIDTH * 8
        return {
            "softmax": nn.Linear(width, self.info.classes),
            "projector": nn.Sequential(
                nn.Linear(width, PROJECTOR_HIDDEN, bias=False),
                nn.BatchNorm1d(PROJECTOR_HIDDEN),
                nn.ReLU(),
                nn.Linear(PROJECTOR_HIDDEN, width, bias=False),
            ),
        }

    @property
    def _dual(self) -> DualBackbone:
        dual = self.net["backbone"]
        assert isinstance(dual, DualBackbone)
        return dual

    def receive(self, incoming: Batch) -> None:
        """Take the slow steps, then go back most of the way (look-ahead)."""
        states = [part.state_dict() for part in self._slow_parts]
        before = [{k: v.clone() for k, v in state.items()} for state in states]
        for _ in range(self.config.updates_per_batch):
            self._slow_step(incoming)
        for part, old in zip(self._slow_parts, before, strict=True):
            with torch.no_grad():
                for name, now in part.state_dict().items():
                    if now.is_floating_point():
                        now.copy_(torch.lerp(old[name], now, self.config.look_ahead))

    def _slow_step(self, incoming: Batch) -> None:
        batch = incoming
        if self.old_classes > 0:
            slots = self.draw_slots(self.config.memory_batch_size)
            batch = self.recall(slots) if len(slots) > 1 else incoming
        z = []
        for _ in range(2):
            images = view(self.config.views, batch.images, self.view_rng)
            self.trained_images += len(images)
            z.append(self.net["projector"](self._dual.slow(images)))
        loss = barlow_twins(z[0], z[1])
        self._slow_optimiser.forget_gradients()
        loss.backward()
        self._slow_optimiser.step()
        self.live["barlow"] = loss.detach()

    def retrieve(self, incoming: Batch) -> Batch | None:
        """Return a uniform draw and remember its slots for the distillation."""
        if self.old_classes == 0 and not self.config.first_stage_replay:
            return None
        self._slots = self.draw_slots(self.config.memory_batch_size)
        return self.recall(self._slots) if len(self._slots) else None

    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Step on CE(B) + CE(B_M) + rho KL of the exemplars whose logits are known."""
        loss = F.cross_entropy(self._classify(incoming.images), incoming.labels)
        if replay is not None:
            z = self._classify(replay.images)
            loss = loss + F.cross_entropy(z, replay.labels)
            if self.old_classes > 0:
                # The official code also uses logits of images that have left the slot.
                valid = self._logits_of[self._slots] == self.memory.indices[self._slots]
                stored = self._logits[self._slots].to(self.device)
                kl = distillation(z, stored, valid.to(self.device), self.config.temperature)
                loss = loss + self.config.distillation_weight * kl
        self.step(loss)

    def _classify(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net["softmax"](self.features(images))
        return logits

    def end_stage(self) -> None:
        """Store the logits of exemplars that came in this stage."""
        filled = self.memory.filled
        new = torch.nonzero(self._logits_of[:filled] != self.memory.indices[:filled]).squeeze(1)
        with evaluating(self.net):
            for slots in new.split(250):
                features = self.net["backbone"](self.recall(slots).images)
                self._logits[slots] = self.net["softmax"](features).cpu()
        self._logits_of[new] = self.memory.indices[new]

    def state(self) -> dict[str, Any]:
        """Return the base's state with the stored logits."""
        own = {"logits": self._logits.clone(), "logits_of": self._logits_of.clone()}
        return {**super().state(), **own}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        super().load(state)
        self._logits, self._logits_of = state["logits"].clone(), state["logits_of"].clone()
