"""What may be set of SDAF, and the defaults."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.series import LONG, SHORT, Colours, ViewSeries
from oclgrid.trainables.spec import MethodConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class SdafConfig(MethodConfig):
    """Defaults of SDAF."""

    about: ClassVar[str] = "Yu and Chiu, Contrasting Semantically Distinct Augmentations"
    views_per_image: ClassVar[int] = 8
    name: str = "sdaf"
    updates_per_batch: int = 1
    """I of Algorithm 1: one step on 4 rotations x 2 views costs as much as eight plain ones."""
    classifier: Literal["softmax", "ncm-euclid", "ncm-mahalanobis"] = "ncm-mahalanobis"
    rotation_count: Literal[1, 4] = 4
    """K of Eq. 4."""
    self_supervised_weight: float = field(default=1.5, metadata={"paper": "lambda"})
    """lambda of Eq. 12."""
    temperature: float = field(default=0.5, metadata={"paper": "tau_w"})
    """tau_w of Eq. 9."""
    long: ViewSeries = LONG
    """H of the first view of a pair."""
    short: ViewSeries = SHORT
    """H of the second view of a pair. Which view gets which cannot matter: Eq. 7 is symmetric."""
    reduction: Literal["mean", "image", "sum"] = "mean"
    """Reading: Eq. 7 and 10 print sums, the prose speaks of averages; a sum over 160 views at
    rate 0.1 would be a step of 16. In between: views of an image summed, images averaged."""
    kept_mean: Literal["kept", "all"] = "kept"
    """Reading: Eq. 10 divided by the views that were kept (it is called sampling), or by all."""
    labels: Literal["extended", "original"] = "extended"
    """Each rotation a class of its own (Eq. 4), or, in the ablation Align, the image's class."""
    positives: Literal["pair", "image"] = "pair"
    """Reading of Align: L_SS unchanged, since Eq. 7 never uses labels, or between all 2 K views of
    an image, as the name suggests."""
    labelled: Literal["both", "long", "short"] = "both"
    """Reading: j is free in Eq. 10; both views carry labels in Eq. 5."""
    keep_draw: Literal["view", "rotation", "image"] = "view"
    """Reading: Eq. 11 drawn for every view, or once for a rotated image, or once for an image."""
    first_rate: Literal["one", "formula"] = "one"
    """Reading: in the first stage nothing is old: gamma 1, or Eq. 9 with w_old = 0."""
    weight_mean: Literal["entries", "norms"] = "entries"
    """Reading: w of Eq. 9 as the signed mean of the weights, or the mean norm of their vectors."""
    unseen: Literal["masked", "included"] = "masked"
    """Reading: outputs of classes still to come are out of the softmax (the paper's probability
    vector has K (C_old + C_t) entries), or in it."""
    head_norm: bool = False
    """Reading: BatchNorm in G and P as in SimSiam, or none as in SCR, whose parts these are."""
    predictor_hidden: int = 128
    """Reading: P's hidden width is not given; 128 is the only one named, SimSiam has a quarter."""
    pair_scale: Literal["mean", "sum"] = "mean"
    """Reading: Eq. 7 as mean over all views, as the prose has it, or summed over each pair."""
    norm_batch: Literal["joint", "view", "source"] = "joint"
    """Reading: BatchNorm over all views together (they extend one mini-batch), over long and short
    views apart, or over incoming and memory images apart."""
    view_draw: Literal["image", "batch"] = "image"
    """Reading: H is drawn anew for each image, as Eq. 5 has it, or once for a whole batch."""
    colours: Colours = "torchvision"
    """Reading: H's classes go by these names in torchvision and in kornia, which the reference of
    SCR uses; their colour jitters differ."""
    exemplar_views: Literal["plain", "long", "short"] = "plain"
    """Reading: the features that centres and covariance are of (Eq. 13) are those of exemplars
    turned only, or turned and then seen through H once, as they are in training."""

    def __post_init__(self) -> None:
        MethodConfig.__post_init__(self)
        if not 0 <= self.self_supervised_weight <= 1000:
            raise SpecError(
                f"{self.name}.lambda must lie in [0, 1000], got {self.self_supervised_weight}"
            )
        if not 0.0001 <= self.temperature <= 10000:
            raise SpecError(
                f"{self.name}.tau_w must lie in [0.0001, 10000], got {self.temperature}"
            )
        if not 1 <= self.predictor_hidden <= 65536:
            raise SpecError(
                f"{self.name}.predictor_hidden must lie in [1, 65536], got {self.predictor_hidden}"
            )
