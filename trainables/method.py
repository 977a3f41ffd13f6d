"""What every method shares: network, optimiser, memory, and Algorithm 1's hooks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from oclgrid.trainables.datasets import Dataset
from oclgrid.trainables.memory import Memory, reservoir_update, uniform_retrieval
from oclgrid.trainables.network import Backbone, Features, feature_size
from oclgrid.trainables.optimiser import Sgd
from oclgrid.trainables.predictor import (
    Predictor,
    SoftmaxPredictor,
    evaluating,
    fit_centres,
    rotated_features,
)
from oclgrid.trainables.spec import CellSpec, MethodConfig
from oclgrid.trainables.stream import Batch, Stream

C = TypeVar("C", bound=MethodConfig)


class Method(ABC, Generic[C]):
    """One learner. Subclasses say which heads they have and how they learn from a batch."""

    rotation_count: int = 1
    """K: how many rotations of an image the classifier looks at."""
    config: C

    def __init__(
        self, spec: CellSpec, info: Dataset, stream: Stream, *, device: torch.device
    ) -> None:
        self.config = spec.method  # type: ignore[assignment]  # the registry pairs the two
        self.spec, self.info, self.stream, self.device = spec, info, stream, device
        self.features_out = feature_size(info.side, self.config.feature_pool)
        # Layers draw their weights from the global generator: lend it, and give it back.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(spec.generator("weights").initial_seed())
            self.net = nn.ModuleDict(
                {"backbone": self.backbone(self._backbone_options()), **self.heads()}
            )
        self.net.to(device).to(memory_format=torch.channels_last)
        self.optimiser = Sgd(
            self.net.parameters(),
            self.config.learning_rate,
            momentum=self.config.momentum,
            weight_decay=self.config.weight_decay,
        )
        self.memory = Memory(spec.memory_size)
        self.trained_images = 0
        """Images trained on so far, views counted one by one."""
        self.losses: list[Tensor] = []
        """Loss of each training step since the last look, on the device."""
        self.live: dict[str, Tensor] = {}
        """Other values worth watching during a stage."""

    def _backbone_options(self) -> dict[str, Any]:
        config = self.config
        options: dict[str, Any] = {"pool": config.feature_pool, "precision": config.precision}
        if config.normalise_inputs:
            options |= {"mean": self.info.mean, "std": self.info.std}
        return options

    def backbone(self, options: dict[str, Any]) -> Features:
        """Return F of the paper."""
        return Backbone(**options)

    def fresh_backbone(self) -> Features:
        """Return one more backbone, for weights of another stage."""
        with torch.random.fork_rng(devices=[]):  # its own weights are drawn, only to be replaced
            made = self.backbone(self._backbone_options())
        return made.to(self.device).to(memory_format=torch.channels_last)

    @abstractmethod
    def heads(self) -> dict[str, nn.Module]:
        """Return the modules this method puts on the backbone; "softmax" is the classifier's."""

    @abstractmethod
    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Take one training step on an incoming batch and what was retrieved for it."""

    # Algorithm 1's other steps, with the defaults most methods share.

    def begin_stage(self, stage: int) -> None:
        """Get ready for the new classes of a stage."""
        self.old_classes = stage * self.info.classes_per_stage
        self.seen_classes = self.old_classes + self.info.classes_per_stage
        self.memory_rng = self.spec.generator("memory", stage)
        self.view_rng = self.spec.generator("views", stage)
        self.method_rng = self.spec.generator("method", stage)
        self.net.train()

    def retrieve(self, incoming: Batch) -> Batch | None:
        """MemoryRetrieval: a uniform draw; None while there is nothing to draw."""
        slots = self.draw_slots(self.config.memory_batch_size)
        return self.recall(slots) if len(slots) else None

    def draw_slots(self, wanted: int) -> Tensor:
        """Return slots of the memory, drawn uniformly as the config has it."""
        below = self.old_classes if self.config.replay_from == "old" else None
        slots = uniform_retrieval(self.memory, wanted, generator=self.memory_rng, below=below)
        if len(slots) < wanted and self.config.short_memory == "wait":
            return slots[:0]
        if 0 < len(slots) < wanted and self.config.short_memory == "repeat":
            again = torch.randint(len(slots), (wanted,), generator=self.memory_rng)
            slots = slots[again]
        return slots

    def recall(self, slots: Tensor) -> Batch:
        """Return the exemplars in these slots."""
        return self.stream.fetch(self.memory.indices[slots])

    def remember(self, incoming: Batch) -> None:
        """MemoryUpdate: offer the incoming batch to the reservoir."""
        labels = incoming.labels.cpu()
        reservoir_update(self.memory, incoming.indices, labels, generator=self.memory_rng)

    def end_stage(self) -> None:
        """Do what the method does between stages; most do nothing."""

    def receive(self, incoming: Batch) -> None:
        """Get ready for an incoming batch, once, before its I steps; most do nothing."""

    # Building blocks for ``learn``.

    def features(self, images: Tensor) -> Tensor:
        """Return the backbone's features of images that are trained on."""
        self.trained_images += len(images)
        return self.net["backbone"](images)  # type: ignore[no-any-return]

    def step(self, loss: Tensor, *, scale: float = 1.0) -> None:
        """Move the parameters against the gradient of the loss."""
        self.optimiser.forget_gradients()
        (loss * scale if scale != 1.0 else loss).backward()
        self.optimiser.step()
        self.losses.append(loss.detach())

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Return the gradient for each parameter of the network; zeros where it has no part."""
        parameters = list(self.net.parameters())
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)
        ]

    def descend(self, gradients: Sequence[Tensor], loss: Tensor) -> None:
        """Step along given gradients; ``loss`` is what they are told to belong to."""
        for parameter, gradient in zip(self.net.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.optimiser.step()
        self.losses.append(loss.detach())

    # What the stage loop needs at the end of a stage.

    def predictor(self) -> Predictor:
        """Return the configured classifier, fitted to the memory as it is now."""
        backbone = self.net["backbone"]
        assert isinstance(backbone, Features)
        class_ids = torch.tensor(self.stream.sequence, device=self.device)
        if self.config.classifier == "softmax":
            head = self.net["softmax"]
            assert isinstance(head, nn.Linear)
            return SoftmaxPredictor(
                backbone, class_ids, self.rotation_count, head=self.softmax_head(head)
            )
        is_euclidean = self.config.classifier == "ncm-euclid"
        with evaluating(self.net):
            return fit_centres(
                backbone,
                class_ids,
                self.rotation_count,
                features_NKD=self._exemplar_features(backbone),
                labels_N=self.memory.labels[: self.memory.filled].to(self.device),
                classes=self.seen_classes,
                cutoff=None if is_euclidean else self.config.eigenvalue_cutoff,
                normalise=self.config.normalise_features,
            )

    def softmax_head(self, head: nn.Linear) -> nn.Linear:
        """Return the outputs to predict from; the reference takes all, also of unseen classes."""
        return head

    def exemplars_seen(self, rotated: Tensor, rng: torch.Generator) -> Tensor:
        """Return turned exemplars as class centres are to know them; as they are, for most."""
        return rotated

    def _exemplar_features(self, backbone: Features) -> Tensor:
        k = self.rotation_count
        rng = self.spec.generator("exemplars", self.old_classes)
        parts = [torch.empty(0, k, self.features_out, device=self.device)]
        for chunk in self.memory.indices[: self.memory.filled].split(250):
            images = self.stream.fetch(chunk).images
            parts.append(
                rotated_features(backbone, images, k, seen=lambda x: self.exemplars_seen(x, rng))
            )
        return torch.cat(parts)

    def state(self) -> dict[str, Any]:
        """Return all a later process needs to go on after this stage, as tensors and numbers."""
        return {
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state(),
            "memory": self.memory.state(),
            "trained_images": self.trained_images,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        self.net.load_state_dict(state["net"])
        self.optimiser.load(state["optimiser"])
        self.memory.load(state["memory"])
        self.trained_images = state["trained_images"]


def join(*batches: Batch | None) -> Batch:
    """Return the batches as one, in the given order."""
    present = [b for b in batches if b is not None]
    return Batch(
        torch.cat([b.images for b in present]),
        torch.cat([b.labels for b in present]),
        torch.cat([b.indices for b in present]),
    )
