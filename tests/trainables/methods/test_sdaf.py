import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from slow_twins import assert_same, cosine, gradients, move, toy_cell
from torch import Tensor, nn

from oclgrid.trainables import predictor
from oclgrid.trainables.configs.sdaf import SdafConfig
from oclgrid.trainables.loop import Cell
from oclgrid.trainables.series import LONG, SHORT
from oclgrid.trainables.stream import Batch
from oclgrid.trainables.views import view

K = 4
OLD, SEEN = 2 * K, 4 * K
"""Extended classes that are old, and seen, in the second stage."""
GAP = TAU = 0.01
"""So small a gap leaves the outputs alone, and so small a tau_w makes gamma notice it."""


@dataclass
class Scene:
    """A cell about to take a step, and what an outsider needs to take the same step."""

    cell: Cell
    incoming: Batch
    replay: Batch | None
    stage: int
    k: int

    def __post_init__(self) -> None:
        self.twin = copy.deepcopy(self.cell.method.net)
        parts = [self.incoming] if self.replay is None else [self.incoming, self.replay]
        self.images = torch.cat([b.images for b in parts])
        self.labels = [y for b in parts for y in b.labels.tolist()]

    @property
    def views(self) -> int:
        """Views of the long series, and as many of the short one."""
        return self.k * len(self.labels)

    @property
    def extended(self) -> list[int]:
        """K y + k for all long views, then for all short ones."""
        return [self.k * y + j for y in self.labels for j in range(self.k)] * 2

    def draws(self, count: int) -> list[float]:
        generator = self.cell.spec.generator("method", self.stage)
        drawn: list[float] = torch.rand(count, generator=generator).tolist()
        return drawn

    def both_views(self, **options: Any) -> list[Tensor]:
        turned = [torch.rot90(x, j, dims=(1, 2)) for x in self.images for j in range(self.k)]
        rotated, generator = torch.stack(turned), self.cell.spec.generator("views", self.stage)
        return [view(series, rotated, generator, **options) for series in (LONG, SHORT)]


def cell(**changes: Any) -> Cell:
    config = SdafConfig(**{"batch_size": 2, "memory_batch_size": 2, "temperature": TAU, **changes})
    return toy_cell(config, 4)


def scene(*, stage: int = 1, gap: float = GAP, **changes: Any) -> Scene:
    """Return the first step of a stage, with two old exemplars in memory from the second on.

    Args:
        stage: From 0.
        gap: By how much the mean weight of new classes exceeds that of old ones.
        changes: To the config.
    """
    one = cell(**changes)
    method, k = one.method, changes.get("rotation_count", K)
    for t in range(stage):
        method.begin_stage(t)
        method.remember(next(one.stream.batches(t)))
    method.begin_stage(stage)
    incoming = next(one.stream.batches(stage))
    with torch.no_grad():
        weight, old = softmax(method.net).weight, 2 * stage * k
        new = weight[old : old + 2 * k]
        new += gap - new.mean() + (weight[:old].mean() if stage else 0)
    return Scene(one, incoming, method.retrieve(incoming), stage, k)


def rate(gap: float, temperature: float = TAU) -> float:
    """Gamma of Eq. 9, from how much heavier new classes are."""
    old, new = math.exp(0 / temperature), math.exp(gap / temperature)
    return min(1.0, 2 * old / (old + new))


def kept_by(draws: Sequence[float], labels: Sequence[int], gamma: float) -> list[bool]:
    """Eq. 11, view by view."""
    return [y < OLD or u < gamma for u, y in zip(draws, labels, strict=True)]


def slow_loss(
    of: Scene,
    *,
    kept: Sequence[bool],
    columns: int = SEEN,
    divisor: float | None = None,
    weight: float = 1.5,
    pair_divisor: float | None = None,
    groups: Sequence[Sequence[int]] | None = None,
    **options: Any,
) -> Tensor:
    """L_WABS + lambda L_SS, view by view.

    Args:
        of: The step.
        kept: Views in the cross-entropy, long ones first.
        columns: Outputs in the softmax.
        divisor: Of the summed cross-entropy; the number of kept views unless told.
        weight: lambda.
        pair_divisor: Of the summed cosines; the number of views unless told.
        groups: Views that pass the network together; all of them unless told.
        options: Of the views.
    """
    net, n = of.twin, of.views
    images = torch.cat(of.both_views(**options))
    features: dict[int, Tensor] = {}
    for group in groups or [range(2 * n)]:
        passed = net["backbone"](images[list(group)])
        features |= dict(zip(group, passed, strict=True))
    h = torch.stack([features[v] for v in range(2 * n)])
    z = net["projector"](h)
    p = net["predictor"](z)
    cosines = sum(cosine(p[v], z[(v + n) % (2 * n)].detach()) for v in range(2 * n))
    self_supervised = -cosines / (pair_divisor or 2 * n)
    total = torch.zeros(())
    for v, label in enumerate(of.extended):
        if kept[v]:
            scores = net["softmax"](h[v])[:columns]
            total = total + torch.logsumexp(scores, 0) - scores[label]
    return total / (divisor or max(1, sum(kept))) + weight * self_supervised


def assert_step(of: Scene, loss: Tensor) -> None:
    """Take the step both ways and compare loss and all that the network holds."""
    of.cell.method.learn(of.incoming, of.replay)
    expected = float(loss.detach())
    assert float(of.cell.method.losses[-1]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    move(of.twin, gradients(of.twin, loss))
    assert_same(of.cell.method.net, of.twin, atol=2e-5, rtol=1e-3)


def sampled(of: Scene, gamma: float) -> list[bool]:
    """Return the views that a draw for each of them keeps, some but not all."""
    kept = kept_by(of.draws(2 * of.views), of.extended, gamma)
    assert 0 < sum(kept) < len(kept)
    return kept


def softmax(net: nn.ModuleDict) -> nn.Linear:
    head = net["softmax"]
    assert isinstance(head, nn.Linear)
    return head


def test_a_step_follows_the_equations() -> None:
    of = scene()
    assert of.replay is not None
    assert_step(of, slow_loss(of, kept=sampled(of, rate(GAP))))
    assert of.cell.method.trained_images == 2 * of.views == 32


def test_the_first_step_is_on_the_incoming_batch_alone_with_all_views_kept() -> None:
    of = scene(stage=0)
    assert of.replay is None
    assert_step(of, slow_loss(of, kept=[True] * 16, columns=2 * K))
    assert float(of.cell.method.live["gamma"]) == 1


def test_gamma_is_one_when_new_classes_do_not_weigh_more() -> None:
    of = scene(gap=-GAP)
    assert_step(of, slow_loss(of, kept=[True] * 2 * of.views))


def test_exemplars_of_the_current_stage_count_as_new() -> None:
    of = scene(gap=20 * GAP)
    assert of.replay is not None
    new = of.cell.stream.fetch(of.incoming.indices.flip(0))
    of = Scene(of.cell, of.incoming, new, of.stage, of.k)
    loss = slow_loss(of, kept=[False] * 2 * of.views)
    assert_step(of, loss)


def test_lambda_scales_the_self_supervised_loss() -> None:
    of = scene(self_supervised_weight=0.25)
    assert_step(of, slow_loss(of, kept=sampled(of, rate(GAP)), weight=0.25))


def test_tau_w_sets_how_sharply_the_rate_reacts() -> None:
    of = scene(temperature=4 * TAU, gap=2 * GAP)
    assert_step(of, slow_loss(of, kept=sampled(of, rate(2 * GAP, 4 * TAU))))


def test_a_gap_of_a_tenth_gives_the_stated_rate_at_the_papers_tau_w() -> None:
    of = scene(temperature=SdafConfig().temperature, gap=0.1)
    of.cell.method.learn(of.incoming, of.replay)
    assert float(of.cell.method.live["gamma"]) == pytest.approx(0.900, abs=1e-3)


def test_without_rotations_an_image_is_one_class() -> None:
    of = scene(rotation_count=1, gap=-GAP)
    assert of.extended == of.labels * 2
    assert_step(of, slow_loss(of, kept=[True] * 2 * of.views, columns=4))


@pytest.mark.parametrize("kept_mean", ["kept", "all"])
@pytest.mark.parametrize("reduction", ["sum", "image"])
def test_a_sum_is_not_divided_by_views(reduction: str, kept_mean: str) -> None:
    of = scene(reduction=reduction, learning_rate=0.1, kept_mean=kept_mean)
    kept, divisor = sampled(of, rate(GAP)), 1 if reduction == "sum" else len(of.labels)
    of.cell.method.learn(of.incoming, of.replay)
    loss = slow_loss(of, kept=kept, divisor=divisor, pair_divisor=divisor)
    assert float(of.cell.method.losses[-1]) == pytest.approx(float(loss.detach()), rel=1e-4)


def test_the_mean_can_run_over_all_views() -> None:
    of = scene(kept_mean="all")
    assert_step(of, slow_loss(of, kept=sampled(of, rate(GAP)), divisor=2 * of.views))


@pytest.mark.parametrize("labelled", ["long", "short"])
def test_one_series_alone_can_carry_labels(labelled: str) -> None:
    of = scene(labelled=labelled)
    kept = sampled(of, rate(GAP))
    blank = [False] * of.views
    kept = kept[: of.views] + blank if labelled == "long" else blank + kept[of.views :]
    assert_step(of, slow_loss(of, kept=kept))


def test_the_views_of_a_rotated_image_can_share_a_draw() -> None:
    of = scene(keep_draw="rotation")
    kept = kept_by(of.draws(of.views), of.extended[: of.views], rate(GAP))
    assert_step(of, slow_loss(of, kept=kept * 2))


def test_the_views_of_an_image_can_share_a_draw() -> None:
    of = scene(keep_draw="image")
    images = kept_by(of.draws(len(of.labels)), [K * y for y in of.labels], rate(GAP))
    kept = [is_kept for is_kept in images for _ in range(K)]
    assert_step(of, slow_loss(of, kept=kept * 2))


def test_the_rate_of_the_first_stage_can_follow_the_formula() -> None:
    of = scene(stage=0, first_rate="formula")
    gamma = rate(GAP)
    draws = of.draws(2 * of.views)
    assert_step(of, slow_loss(of, kept=[u < gamma for u in draws], columns=2 * K))
    assert float(of.cell.method.live["gamma"]) == pytest.approx(gamma, rel=1e-4)


def test_the_formula_for_the_first_stage_changes_no_later_one() -> None:
    of = scene(first_rate="formula")
    assert_step(of, slow_loss(of, kept=sampled(of, rate(GAP))))


def test_the_rate_can_compare_norms_of_weight_vectors() -> None:
    of = scene(weight_mean="norms", gap=1.5 * GAP)
    rows = [math.sqrt(sum(w * w for w in row)) for row in softmax(of.twin).weight.tolist()]
    gap = sum(rows[OLD:SEEN]) / (SEEN - OLD) - sum(rows[:OLD]) / OLD
    assert gap > 0
    assert_step(of, slow_loss(of, kept=sampled(of, rate(gap))))


def test_classes_still_to_come_can_be_in_the_softmax() -> None:
    of = scene(unseen="included")
    assert_step(of, slow_loss(of, kept=sampled(of, rate(GAP)), columns=10 * K))


def test_classes_still_to_come_do_not_learn_unless_included() -> None:
    for unseen, moves in (("masked", False), ("included", True)):
        of = scene(unseen=unseen)
        of.cell.method.learn(of.incoming, of.replay)
        before, after = softmax(of.twin).weight, softmax(of.cell.method.net).weight
        assert torch.equal(before[SEEN:], after[SEEN:]) != moves


def test_heads_have_batchnorm_as_in_simsiam_when_asked() -> None:
    def norms(head: nn.Module) -> list[int]:
        return [m.num_features for m in head.modules() if isinstance(m, nn.BatchNorm1d)]

    plain, normed = cell().method.net, cell(head_norm=True).method.net
    assert norms(plain["projector"]) == norms(plain["predictor"]) == []
    assert norms(normed["projector"]) == [160, 128]
    assert norms(normed["predictor"]) == [128]


def test_the_predictor_is_as_wide_as_asked() -> None:
    assert cell().method.net["predictor"][0].out_features == 128
    head = cell(predictor_hidden=32).method.net["predictor"]
    assert [(m.in_features, m.out_features) for m in (head[0], head[-1])] == [(128, 32), (32, 128)]


def test_cosines_can_be_summed_over_each_pair() -> None:
    of = scene(pair_scale="sum")
    assert_step(of, slow_loss(of, kept=sampled(of, rate(GAP)), pair_divisor=of.views))


def test_long_and_short_views_can_pass_apart() -> None:
    of = scene(norm_batch="view")
    n = of.views
    groups = [range(n), range(n, 2 * n)]
    assert_step(of, slow_loss(of, kept=sampled(of, rate(GAP)), groups=groups))


def test_incoming_and_memory_images_can_pass_apart() -> None:
    of = scene(norm_batch="source")
    n, cut = of.views, K * len(of.incoming)
    groups = [
        [*range(cut), *range(n, n + cut)],
        [*range(cut, n), *range(n + cut, 2 * n)],
    ]
    assert_step(of, slow_loss(of, kept=sampled(of, rate(GAP)), groups=groups))


def test_incoming_images_alone_pass_together_whatever_the_grouping() -> None:
    of = scene(stage=0, norm_batch="source")
    assert_step(of, slow_loss(of, kept=[True] * 16, columns=2 * K))


@pytest.mark.parametrize("views", [{"view_draw": "batch"}, {"colours": "kornia"}])
def test_views_are_made_as_asked(views: dict[str, str]) -> None:
    of, made = scene(**views), {"shared": True} if "view_draw" in views else views
    assert_step(of, slow_loss(of, kept=sampled(of, rate(GAP)), **made))


def test_no_gradient_reaches_the_target_of_a_cosine() -> None:
    of = scene(gap=20 * GAP)
    assert of.replay is not None
    of.cell.method.learn(of.incoming, None)
    before, after = of.twin["projector"], of.cell.method.net["projector"]
    moved = [
        not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True)
    ]
    assert all(moved)  # through p; assert_step above shows that it is through p alone


def test_a_softmax_predictor_has_outputs_for_the_classes_seen() -> None:
    for unseen, outputs in (("masked", SEEN), ("included", 10 * K)):
        of = scene(unseen=unseen, classifier="softmax")
        head = softmax(of.cell.method.net)
        found = of.cell.predictor().head
        assert isinstance(found, nn.Linear)
        assert torch.equal(found.weight, head.weight[:outputs])
        assert torch.equal(found.bias, head.bias[:outputs])


EXEMPLAR_VIEWS = {"plain": None, "long": LONG, "short": SHORT}


@pytest.mark.parametrize("exemplar_views", EXEMPLAR_VIEWS)
def test_prediction_uses_one_covariance_over_all_classes_and_rotations(exemplar_views: str) -> None:
    of = scene(exemplar_views=exemplar_views)
    method = of.cell.method
    fitted = method.predictor().eval()
    backbone = method.net["backbone"].eval()
    memory = method.memory
    with torch.inference_mode():
        exemplars = of.cell.stream.fetch(memory.indices[: memory.filled]).images
        turned = torch.stack([torch.rot90(x, j, dims=(1, 2)) for x in exemplars for j in range(K)])
        if series := EXEMPLAR_VIEWS[exemplar_views]:
            turned = view(series, turned, of.cell.spec.generator("exemplars", OLD // K))
        rows = backbone(turned).double().unflatten(0, (-1, K)).transpose(0, 1)
        covariance = torch.cov(rows.flatten(0, 1).T)
        inverse = torch.linalg.pinv(covariance, rtol=1e-5, hermitian=True)
        images, _ = next(of.cell.stream.evaluation(4))
        tested = torch.stack([backbone(torch.rot90(images, j, dims=(2, 3))) for j in range(K)])
        held = sorted(set(memory.labels[: memory.filled].tolist()))
        distances = {}
        for c in held:
            centres = rows[:, memory.labels[: memory.filled] == c].mean(1)
            gap = tested.double() - centres[:, None]
            distances[c] = torch.einsum("knd,de,kne->kn", gap, inverse, gap).sqrt().mean(0)
        expected = torch.stack([distances[c] for c in held]).argmin(0)
        assert torch.equal(fitted(images), torch.tensor(held)[expected])


def test_views_of_exemplars_do_not_depend_on_how_many_are_taken_in_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = scene(exemplar_views="long").cell.method.predictor().get_buffer("centres")
    monkeypatch.setattr(predictor, "PIXELS_AT_ONCE", 1)
    again = scene(exemplar_views="long").cell.method.predictor().get_buffer("centres")
    assert torch.allclose(made, again, rtol=1e-3, atol=1e-5, equal_nan=True)


def test_how_exemplars_are_seen_does_not_touch_the_training() -> None:
    plain, long = scene().cell.spec, scene(exemplar_views="long").cell.spec
    assert plain.training_id == long.training_id
    assert plain.cell_id != long.cell_id
