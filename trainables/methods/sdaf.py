"""SDAF (Yu and Chiu): contrast semantically distinct augmentations, balance old and new classes."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from oclgrid.trainables.maths.balance import (
    balanced_cross_entropy,
    extended_labels,
    keep_rate,
    kept_views,
)
from oclgrid.trainables.maths.contrast import mean_negative_cosine, negative_cosine
from oclgrid.trainables.method import Method, join
from oclgrid.trainables.network import mlp
from oclgrid.trainables.registry import method
from oclgrid.trainables.schema import SpecError
from oclgrid.trainables.spec import MethodConfig
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import LONG, SHORT, ViewSeries, rotations, view

PROJECTED = 128
"""Width of z and p."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SdafConfig(MethodConfig):
    """Defaults of SDAF."""

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
    reduction: Literal["mean", "sum"] = "mean"
    """Reading: Eq. 7 and 10 print sums, the prose speaks of averages; a sum over 160 views at
    rate 0.1 would be a step of 16."""
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


@method(SdafConfig)
class Sdaf(Method[SdafConfig]):
    """Weight-aware balanced cross-entropy on rotations as classes, plus SimSiam between views."""

    about = "Yu and Chiu, Contrasting Semantically Distinct Augmentations"
    views_per_image = 8

    def heads(self) -> dict[str, nn.Module]:
        """Return G, P and the softmax layer over K C extended classes."""
        self.rotation_count = self.config.rotation_count
        norm = self.config.head_norm
        projector = mlp(self.features_out, self.features_out, PROJECTED, norm=norm)
        if norm:
            projector.append(nn.BatchNorm1d(PROJECTED))
        return {
            "projector": projector,
            "predictor": mlp(PROJECTED, self.config.predictor_hidden, PROJECTED, norm=norm),
            "softmax": nn.Linear(self.features_out, self._outputs_per_class * self.info.classes),
        }

    @property
    def _outputs_per_class(self) -> int:
        return self.rotation_count if self.config.labels == "extended" else 1

    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Step on L_WABS + lambda L_SS of all views (Eq. 12)."""
        batch = join(incoming, replay)
        rotated = rotations(batch.images, self.rotation_count)
        views = [self._view(series, rotated) for series in (self.config.long, self.config.short)]
        features = self._features(views, len(incoming) * self.rotation_count)
        labels = extended_labels(batch.labels, self.rotation_count).repeat(2)  # Eq. 4
        if self.config.labels == "original":
            labels = labels // self.rotation_count
        loss = self._classify(features, labels)
        loss = loss + self.config.self_supervised_weight * self._contrast(features)
        self.step(loss)

    def _view(self, series: ViewSeries, images: Tensor) -> Tensor:
        shared = self.config.view_draw == "batch"
        return view(series, images, self.view_rng, shared=shared)

    def _features(self, views: list[Tensor], from_stream: int) -> Tensor:
        """Return features of the long, then the short views (2 N K x D)."""
        if self.config.norm_batch == "joint":
            return self.features(torch.cat(views))
        if self.config.norm_batch == "view":
            return torch.cat([self.features(v) for v in views])
        incoming = self.features(torch.cat([v[:from_stream] for v in views])).chunk(2)
        if len(views[0]) == from_stream:
            return torch.cat(incoming)
        replayed = self.features(torch.cat([v[from_stream:] for v in views])).chunk(2)
        return torch.cat([incoming[0], replayed[0], incoming[1], replayed[1]])

    def _contrast(self, features: Tensor) -> Tensor:
        """L_SS of Eq. 7: each view's prediction against the other view's projection."""
        z = self.net["projector"](features)
        z1, z2 = z.chunk(2)
        p1, p2 = self.net["predictor"](z).chunk(2)
        if self.config.positives == "pair":
            loss = (negative_cosine(p1, z2) + negative_cosine(p2, z1)) / 2
        else:
            shape = (-1, 2 * self.rotation_count, PROJECTED)
            p_NVP, z_NVP = (torch.stack(pair, dim=1).view(shape) for pair in ((p1, p2), (z1, z2)))
            loss = mean_negative_cosine(p_NVP, z_NVP)
        if self.config.pair_scale == "sum":
            loss = loss * 2
        return loss * len(z) if self.config.reduction == "sum" else loss

    def _classify(self, features: Tensor, labels: Tensor) -> Tensor:
        """L_WABS of Eq. 10 over the views that Eq. 11 keeps."""
        old, seen = (self._outputs_per_class * c for c in (self.old_classes, self.seen_classes))
        self.live["gamma"] = rate = self._rate(old, seen)
        kept = self._kept(labels, old, rate)
        logits = self.net["softmax"](features)
        if self.config.unseen == "masked":
            logits = logits[:, :seen]
        part = {"both": slice(None), "long": slice(None, len(labels) // 2)}.get(
            self.config.labelled, slice(len(labels) // 2, None)
        )
        logits, labels, kept = logits[part], labels[part], kept[part]
        loss = balanced_cross_entropy(logits, labels, kept, per=self.config.kept_mean)
        if self.config.reduction == "mean":
            return loss
        return loss * (kept.sum() if self.config.kept_mean == "kept" else len(kept))

    def _rate(self, old: int, seen: int) -> Tensor:
        """Gamma of Eq. 9 from the softmax weights as they are before this step."""
        weight = self.net["softmax"].weight
        assert isinstance(weight, Tensor)
        weight = weight.detach()[:seen]
        if self.config.weight_mean == "norms":
            weight = weight.norm(dim=1, keepdim=True)
        if old == 0 and self.config.first_rate == "formula":
            weight, old = torch.cat([torch.zeros_like(weight[:1]), weight]), 1
        return keep_rate(weight, old, self.config.temperature)

    def _kept(self, labels: Tensor, old: int, rate: Tensor) -> Tensor:
        """Eq. 11, drawn per view, or shared by the views of a rotated image or of an image."""
        if self.config.keep_draw == "view":
            return kept_views(labels, old, rate, generator=self.method_rng)
        rotated = labels[: len(labels) // 2]
        if self.config.keep_draw == "rotation":
            return kept_views(rotated, old, rate, generator=self.method_rng).repeat(2)
        k = self.rotation_count
        return (
            kept_views(rotated[::k], old, rate, generator=self.method_rng)
            .repeat_interleave(k)
            .repeat(2)
        )

    def softmax_head(self, head: nn.Linear) -> nn.Linear:
        """Return the outputs in use: those of classes seen so far, unless all are."""
        seen = self.info.classes if self.config.unseen == "included" else self.seen_classes
        rows = torch.arange(self._outputs_per_class * seen)
        # Where rotations share an output, each gets a copy: that shifts all scores alike.
        rows = rows.repeat_interleave(self.rotation_count // self._outputs_per_class)
        active = nn.utils.skip_init(nn.Linear, head.in_features, len(rows))
        assert isinstance(active, nn.Linear)
        active.load_state_dict({k: v[rows.to(v.device)] for k, v in head.state_dict().items()})
        return active.to(self.device)
