"""The paper's analyses of one finished cell: what may be set, and what is found."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from oclgrid.trainables.datasets import dataset
from oclgrid.trainables.outliers import OUTLIERS
from oclgrid.trainables.schema import SpecError, unknown

if TYPE_CHECKING:
    from oclgrid.trainables.snapshots import Snapshots

VERSION = 1
"""Raised when the same settings would no longer give the same findings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What an analysis found, as plain data."""

    numbers: dict[str, float]
    """What can be compared between cells."""
    data: dict[str, Any] = field(default_factory=dict)
    """What a figure is drawn from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """Settings of an analysis. They change no number of a cell, so they are not part of it."""

    name: ClassVar[str]
    about: ClassVar[str]

    def compute(self, cell: "Snapshots") -> Findings:
        """Return what the analysis finds in a finished cell."""
        raise NotImplementedError

    def outlier_sets(self, dataset_name: str) -> tuple[str, ...]:
        """Return the sets of outliers that are needed beside the dataset itself."""
        del dataset_name
        return ()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as plain data."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """Tells findings with these settings from findings with others."""
        content = {"version": VERSION, "analysis": self.name, **self.settings}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def _require(self, name: str, low: int) -> None:
        value = getattr(self, name)
        if value is not None and value < low:
            raise SpecError(f"analyses.{self.name}.{name} must be at least {low}, got {value}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cka(Analysis):
    """Linear CKA (Eq. 17) of the backbones after stages t and t + 1, on the data of each stage.

    Reading: the data of a stage are its training images as they arrived, without augmentation
    or rotation; test images would be the other reading.
    """

    name = "cka"
    about = "how much the backbone changes from stage to stage, on seen and unseen data (Eq. 17)"
    images: int | None = 2000
    """Of each stage, the first to arrive; null takes all. 2000 is over ten times the features."""

    def __post_init__(self) -> None:
        self._require("images", 2)

    def compute(self, cell: "Snapshots") -> Findings:
        """Return the (T - 1) x T table and its means over seen and unseen stages."""
        from oclgrid.trainables.analysing import cka

        return cka(self, cell)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ood(Analysis):
    """Area under the ROC curve of outliers against the cell's own test images.

    The score is the Mahalanobis distance to the nearest class centre, averaged over the K
    rotations of the method as in Eq. 14; K is 1 for methods without rotations.
    """

    name = "ood"
    about = "how well outliers are told from test images (area under the ROC curve)"
    outliers: tuple[str, ...] | None = None
    """Null: MNIST, Omniglot and SVHN; for digits, photographs."""
    images: int | None = 2000
    """Of each set of outliers, and of the training images of each stage; null takes all. By
    Hanley and McNeil's formula, against 10,000 test images, the standard error of an area of 0.85
    is 0.006 with 2000 outliers and 0.003 with 10,000."""
    normalise: Literal["method", "never"] = "method"
    """Reading: features of unit length where the method's classifier has them so (SCR and SCL),
    or as they are for all methods."""

    def __post_init__(self) -> None:
        self._require("images", 2)
        for name in self.outliers or ():
            _require_known(name)

    def outlier_sets(self, dataset_name: str) -> tuple[str, ...]:
        """Return the sets asked for, or those that suit the dataset."""
        return self.outliers or default_outliers(dataset_name)

    def compute(self, cell: "Snapshots") -> Findings:
        """Return the area by set, for centres of all training images and of the memory."""
        from oclgrid.trainables.analysing import ood

        return ood(self, cell)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tsne(Analysis):
    """Test images and outliers in the plane, by t-SNE of their features without rotation."""

    name = "tsne"
    about = "test images and outliers in the plane (t-SNE of their features)"
    outliers: str | None = None
    """Null: SVHN; for digits, photographs."""
    images: int = 1000
    """Of each kind, evenly spaced."""
    seed: int = 0

    def __post_init__(self) -> None:
        self._require("images", 50)
        self._require("seed", 0)
        if self.outliers is not None:
            _require_known(self.outliers)

    def outlier_sets(self, dataset_name: str) -> tuple[str, ...]:
        """Return the one set asked for, or the one that suits the dataset."""
        return (self.outliers or default_outliers(dataset_name)[-1],)

    def compute(self, cell: "Snapshots") -> Findings:
        """Return the plane's coordinates; the number is what t-SNE minimised."""
        from oclgrid.trainables.analysing import tsne

        return tsne(self, cell)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scree(Analysis):
    """Eigenvalues of the covariance of test features, without rotation."""

    name = "scree"
    about = "over how many directions the features of test images spread (eigenvalues)"
    count: int = 40
    """How many eigenvalues, the largest first."""

    def __post_init__(self) -> None:
        self._require("count", 1)

    def compute(self, cell: "Snapshots") -> Findings:
        """Return the eigenvalues, and how many directions carry the variance."""
        from oclgrid.trainables.analysing import scree

        return scree(self, cell)


@dataclass(frozen=True, kw_only=True, slots=True)
class Centres(Analysis):
    """Accuracy of nearest class centres (Eq. 14) by what they are means of.

    Exemplars are trained on again and again; images that arrived and are not among them once, or
    while they were. Where centres of the latter are much the better ones, the memory may have been
    learnt by heart. A part may be that they are more: their peers are as many a class as exemplars.
    """

    name = "centres"
    about = "what centres of exemplars lose against those of other images of the stream (accuracy)"
    images: int | None = 500
    """Of each stage, the first to arrive, without exemplars; null takes all."""

    def __post_init__(self) -> None:
        self._require("images", 2)

    def compute(self, cell: "Snapshots") -> Findings:
        """Return accuracies by whose centres, how far is measured, and what is classified."""
        from oclgrid.trainables.analysing import centres

        return centres(self, cell)


ANALYSES: dict[str, type[Analysis]] = {a.name: a for a in (Cka, Ood, Tsne, Scree, Centres)}


def default_outliers(dataset_name: str) -> tuple[str, ...]:
    """Return the paper's sets of outliers; what needs no download gets one that needs none."""
    is_embedded = dataset(dataset_name).is_embedded
    return ("photos",) if is_embedded else ("mnist", "omniglot", "svhn")


def _require_known(name: str) -> None:
    if name not in OUTLIERS:
        raise unknown("outlier set", name, OUTLIERS)
