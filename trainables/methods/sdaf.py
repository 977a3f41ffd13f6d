"""SDAF (Yu and Chiu): contrast semantically distinct augmentations, balance old and new classes."""

import torch
from torch import Tensor, nn

from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.maths.balance import (
    balanced_cross_entropy,
    extended_labels,
    keep_rate,
    kept_views,
)
from oclgrid.trainables.maths.contrast import (
    direction_spread,
    mean_negative_cosine,
    negative_cosine,
)
from oclgrid.trainables.method import Method, join
from oclgrid.trainables.network import mlp
from oclgrid.trainables.registry import method
from oclgrid.trainables.series import ViewSeries
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import rotations, view

PROJECTED = 128
"""Width of z and p."""


@method(SdafConfig)
class Sdaf(Method[SdafConfig]):
    """Weight-aware balanced cross-entropy on rotations as classes, plus SimSiam between views."""

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
        shared, colours = self.config.view_draw == "batch", self.config.colours
        return view(series, images, self.view_rng, shared=shared, colours=colours)

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
        self.live |= {
            "self_supervised_loss": loss.detach(),
            "projection_spread": direction_spread(z.detach()),
        }
        if self.config.pair_scale == "sum":
            loss = loss * 2
        return loss * self._terms(len(z), len(z))

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
        divided_by = kept.sum() if self.config.kept_mean == "kept" else len(kept)
        return loss * self._terms(divided_by, len(features))

    def _terms(self, divided_by: Tensor | int, views: int) -> Tensor | float:
        """Return what makes a mean a sum over all views, or over those of an image."""
        if self.config.reduction == "mean":
            return 1.0
        per_image = 2 * self.rotation_count / views
        return divided_by * (per_image if self.config.reduction == "image" else 1.0)

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

    def exemplars_seen(self, rotated: Tensor, rng: torch.Generator) -> Tensor:
        """Return turned exemplars, through one of the series of H where that is the reading."""
        if self.config.exemplar_views == "plain":
            return rotated
        series = self.config.long if self.config.exemplar_views == "long" else self.config.short
        return view(series, rotated, rng, colours=self.config.colours)

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
