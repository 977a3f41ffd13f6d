"""What a cell is: every value that can change its numbers, and the name that follows from them."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from oclgrid.trainables.schema import SpecError, check_fields, named

if TYPE_CHECKING:
    import torch

SPEC_VERSION = 1
"""Raised when the same spec would no longer give the same numbers."""
Arrival = Literal["drawn", "natural"]
INFERENCE_FIELDS = ("classifier", "normalise_features", "eigenvalue_cutoff", "exemplar_views")
"""Of a method's config: what a trained network can be classified with, one way or another."""
LATER_FIELDS = {"precision": "float32", "exemplar_views": "plain", "colours": "torchvision"}
"""Of a method's config: what has come since the first cells, and what those had."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodConfig:
    """What every method has; each adds its own fields and defaults below this."""

    about: ClassVar[str] = ""
    """The paper behind the method."""
    views_per_image: ClassVar[int] = 1
    """How many views of an image a training step sees."""
    stores: ClassVar[str] = "exemplars"
    """What the method keeps between batches besides the network."""
    trains_as: ClassVar[str] = ""
    """Name of the method that trains the same network, where only inference differs."""
    name: str
    updates_per_batch: int
    """I of Algorithm 1: training steps on each incoming batch."""
    learning_rate: float = 0.1
    momentum: float = 0.0
    """Reading: the paper names SGD and a rate only; the other reading is 0.9."""
    weight_decay: float = 0.0
    """Reading: as for momentum; the other reading is 1e-4."""
    batch_size: int = 10
    """Images per incoming batch."""
    memory_batch_size: int = 10
    """Exemplars drawn for each training step."""
    classifier: Literal["softmax", "ncm-euclid", "ncm-mahalanobis"] = "softmax"
    normalise_features: bool = False
    """Whether nearest-centre classifiers scale features to unit length first."""
    eigenvalue_cutoff: float = 1e-5
    """Reading: the paper says pseudo-inverse and leaves the cut-off open. Eigenvalues of the
    covariance at or below this share of the largest count as zero; 1e-15 was torch's default."""
    feature_pool: Literal["global", "grid"] = "global"
    """Reading: the paper has 160 features throughout (global pooling); its reference pools
    windows of 4x4, which gives 640 at 84x84 and the same at 32x32."""
    normalise_inputs: bool = False
    """Reading: the reference only scales to [0, 1]; the other reading standardises channels too."""
    replay_from: Literal["all", "old"] = "all"
    """Reading: the memory batch may hold classes of the current stage, as in the reference, or
    only those of earlier stages (SCR then does not train in the first stage)."""
    memory_update: Literal["after", "before"] = "after"
    """Reading: Algorithm 1 updates the memory after the I steps; DualNet's code does so before."""
    short_memory: Literal["all", "repeat", "wait"] = "all"
    """Reading: with fewer exemplars than asked for, train on all there are, draw with
    repetition, or replay nothing until there are enough."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the backbone's layers. The other numbers of bfloat16 make another cell."""

    @classmethod
    def for_dataset(cls, dataset: str) -> dict[str, Any]:
        """Return the defaults that differ on this dataset from those of the fields."""
        del dataset
        return {}

    def __post_init__(self) -> None:
        check_fields(self, self.name)
        for field in ("updates_per_batch", "batch_size", "memory_batch_size"):
            if not 1 <= getattr(self, field) <= 100_000:
                raise SpecError(
                    f"{self.name}.{field} must lie in [1, 100000], got {getattr(self, field)}"
                )
        if not 0 < self.learning_rate <= 100:
            raise SpecError(
                f"{self.name}.learning_rate must lie in (0, 100], got {self.learning_rate}"
            )
        for field in ("momentum", "weight_decay", "eigenvalue_cutoff"):
            if not 0 <= getattr(self, field) < 1:
                raise SpecError(
                    f"{self.name}.{field} must lie in [0, 1), got {getattr(self, field)}"
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class CellSpec:
    """One square of the sweep: everything that can change its numbers."""

    dataset: str
    data_digest: str
    """Digest of the decoded images and labels."""
    memory_size: int
    """M: exemplars kept, over all classes."""
    class_order: int
    """Which arrival order of the classes; the number alone fixes the permutation."""
    seed: int
    """Weights, batch order, views, memory. Independent of ``class_order``."""
    method: MethodConfig
    protocol: Literal["test", "validation"] = "test"
    """What accuracy is measured on: the test set, or a tenth of the training stream held out."""
    stream_fraction: float = 1.0
    """Share of each class's training images (of those not held out) that arrive."""
    arrival: Arrival = "drawn"
    """Reading: the paper draws class orders at random; the configs of its reference let classes
    arrive by their ids in every run. With ``natural`` so do ours, and the number of the class
    order only tells repetitions apart."""

    def __post_init__(self) -> None:
        check_fields(self, "cell")
        for field in ("memory_size", "class_order", "seed"):
            if getattr(self, field) < 0:
                raise SpecError(f"{field} must not be negative, got {getattr(self, field)}")
        if self.memory_size > 10_000_000:
            raise SpecError(f"memory_size must not exceed 10000000, got {self.memory_size}")
        if not 0 < self.stream_fraction <= 1:
            raise SpecError(f"stream_fraction must lie in (0, 1], got {self.stream_fraction}")

    @property
    def resolved(self) -> dict[str, Any]:
        """Every value that can change a number, as plain data."""
        content = {"spec_version": SPEC_VERSION, **asdict(self)}
        for name, all_there_was in LATER_FIELDS.items():  # cells of before keep their names
            if content["method"].get(name) == all_there_was:
                del content["method"][name]
        if self.arrival == "drawn":
            del content["arrival"]
        return content

    @property
    def cell_id(self) -> str:
        """Stable name of this cell, the key under which its results are filed.

        Hashes the whole resolved spec, defaults included, so a changed default
        is a new cell and never a silent reuse of an old result.
        """
        return _digest(self.resolved)

    @property
    def group_id(self) -> str:
        """Name shared by the cells that differ in class order only."""
        content = self.resolved
        del content["class_order"]
        return _digest(content)

    @property
    def training_id(self) -> str:
        """Name shared by the cells whose training is the same, however they classify."""
        return _digest({**self._training, "class_order": self.class_order})

    @property
    def training_group_id(self) -> str:
        """Name shared by the cells whose training differs in class order only."""
        return _digest(self._training)

    @property
    def _training(self) -> dict[str, Any]:
        content = self.resolved
        del content["class_order"]
        content["method"]["name"] = self.method.trains_as or self.method.name
        for field in INFERENCE_FIELDS:
            content["method"].pop(field, None)
        return content

    @property
    def changed(self) -> dict[str, str]:
        """Settings that are not the method's defaults here, as they would stand in a sweep file."""
        return dict(_changed(self.method, self.dataset))

    @property
    def title(self) -> str:
        """The cell in words, for people."""
        changed = ", ".join(f"{k} {v}" for k, v in self.changed.items())
        method = self.method.name
        if changed:
            method += f" ({changed if len(changed) <= 100 else changed[:97] + '...'})"
        order = "order" if self.arrival == "drawn" else f"{self.arrival} order"
        return f"{method} {self.dataset} M={self.memory_size} {order} {self.class_order}"

    def generator(self, purpose: str, stage: int = 0) -> "torch.Generator":
        """Return the source of randomness for one purpose in one stage.

        It follows from seed and class order alone, so methods and memory sizes meet the
        same stream, and a resumed stage starts from the same state as an unbroken one.
        """
        import torch  # here, so that tables and plans do without

        key = f"{self.seed}/{self.class_order}/{purpose}/{stage}"
        seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
        return torch.Generator().manual_seed(seed)


@cache  # of many cells that share a config
def _changed(method: MethodConfig, dataset: str) -> dict[str, str]:
    config = type(method)
    default = named(config(**config.for_dataset(dataset)))
    return {k: _written(v) for k, v in named(method).items() if v != default[k]}


def _written(value: object) -> str:
    """Return a setting as it would stand in a sweep file."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
