import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oclgrid.trainables.maths.balance import (
    balanced_cross_entropy,
    extended_labels,
    keep_rate,
    kept_views,
)

Per = Literal["kept", "all"]
K = 4
C_OLD = 2
C_NEW = 3


def head(w_old: float, w_new: float) -> Tensor:
    """Weights whose entries vary but whose old and new rows have the given means."""
    spread = torch.tensor([-0.5, 0.0, 0.5], dtype=torch.float64)
    rows = [w_old] * (K * C_OLD) + [w_new] * (K * C_NEW)
    return torch.tensor(rows, dtype=torch.float64)[:, None] + spread


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slow_keep_rate(weight_CD: Tensor, old_classes: int, temperature: float) -> float:
    rows = weight_CD.tolist()
    old = [w for row in rows[:old_classes] for w in row]
    new = [w for row in rows[old_classes:] for w in row]
    e_old = math.exp(sum(old) / len(old) / temperature)
    e_new = math.exp(sum(new) / len(new) / temperature)
    return min(1.0, 2 * e_old / (e_old + e_new))


def slow_balanced_cross_entropy(
    logits_NC: Tensor, labels_N: Tensor, kept_N: Tensor, per: Per
) -> float:
    rows = zip(logits_NC.tolist(), labels_N.tolist(), kept_N.tolist(), strict=True)
    losses: list[float] = [
        math.log(sum(map(math.exp, row))) - row[y] for row, y, kept in rows if kept
    ]
    divisor = len(losses) if per == "kept" else len(labels_N)
    return sum(losses) / max(1, divisor)


@pytest.mark.parametrize(("y", "k", "expected"), [(1, 1, 1), (1, 4, 4), (3, 2, 10)])
def test_extended_labels_counted_from_one_match_the_paper(y: int, k: int, expected: int) -> None:
    assert extended_labels(torch.tensor([y - 1]), K)[k - 1] + 1 == expected


def test_extended_labels_keep_the_rotations_of_an_image_together() -> None:
    extended = extended_labels(torch.tensor([2, 0]), K)
    assert extended.tolist() == [8, 9, 10, 11, 0, 1, 2, 3]


@settings(deadline=None)
@given(st.lists(st.integers(0, 99)), st.integers(1, 6))
def test_extended_labels_are_eq_4_for_every_image_and_rotation(ys: list[int], k: int) -> None:
    extended = extended_labels(torch.tensor(ys, dtype=torch.int64), k)
    assert extended.tolist() == [k * y + r for y in ys for r in range(k)]
    assert extended.dtype == torch.int64


def test_one_rotation_leaves_labels_as_they_are() -> None:
    assert extended_labels(torch.tensor([3, 1]), 1).tolist() == [3, 1]


def test_extended_labels_refuse_zero_rotations() -> None:
    with pytest.raises(ValueError, match="rotations must be at least 1, got 0"):
        extended_labels(torch.tensor([3]), 0)


@pytest.mark.parametrize(
    ("w_old", "w_new", "expected"),
    [(-0.02, 0.05, 0.930114), (-0.1, 0.3, 0.620051), (0.2, 0.2, 1), (0.05, -0.02, 1)],
)
def test_rate_matches_the_hand_computed_values(w_old: float, w_new: float, expected: float) -> None:
    rate = keep_rate(head(w_old, w_new), K * C_OLD, 0.5)
    assert rate.item() == pytest.approx(expected, abs=1e-6)


def test_rate_is_one_when_old_classes_weigh_at_least_as_much() -> None:
    assert keep_rate(head(0.4, 0.4), K * C_OLD, 0.5).item() == pytest.approx(1)
    assert keep_rate(head(0.9, 0.1), K * C_OLD, 0.5) == 1


def test_rate_survives_a_gap_that_would_overflow_exp() -> None:
    assert keep_rate(head(0.0, 1e4), K * C_OLD, 0.5) == 0
    assert keep_rate(head(1e4, 0.0), K * C_OLD, 0.5) == 1


def test_rate_is_one_in_the_first_stage() -> None:
    assert keep_rate(head(0.0, 1e4), 0, 0.5) == 1


@pytest.mark.parametrize("old_classes", [-1, K * (C_OLD + C_NEW)])
def test_rate_refuses_a_head_without_new_classes(old_classes: int) -> None:
    with pytest.raises(ValueError, match="old_classes must lie in"):
        keep_rate(head(0.0, 0.0), old_classes, 0.5)


@settings(deadline=None)
@given(st.integers(1, 7), st.floats(0.05, 5), st.integers(0, 10**6))
def test_rate_is_eq_9(old_classes: int, temperature: float, seed: int) -> None:
    weight = torch.randn(8, 3, dtype=torch.float64, generator=generator(seed))
    expected = slow_keep_rate(weight, old_classes, temperature)
    rate = keep_rate(weight, old_classes, temperature).item()
    assert rate == pytest.approx(expected, rel=1e-9)
    assert 0 <= rate <= 1


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 19), max_size=30), st.integers(0, 20), st.floats(0, 1), st.integers(0)
)
def test_views_are_kept_as_eq_11_says(
    ys: list[int], old_classes: int, rate: float, seed: int
) -> None:
    seed %= 2**32
    kept = kept_views(
        torch.tensor(ys, dtype=torch.int64),
        old_classes,
        torch.tensor(rate, dtype=torch.float64),
        generator=generator(seed),
    )
    uniforms = torch.rand(len(ys), generator=generator(seed)).tolist()
    assert kept.dtype == torch.bool
    assert kept.tolist() == [y < old_classes or u < rate for y, u in zip(ys, uniforms, strict=True)]


def test_a_rate_of_one_keeps_every_view_and_a_rate_of_zero_the_old_ones() -> None:
    labels = torch.arange(K * (C_OLD + C_NEW)).repeat(500)
    everything = kept_views(labels, K * C_OLD, torch.tensor(1.0), generator=generator())
    nothing_new = kept_views(labels, K * C_OLD, torch.tensor(0.0), generator=generator())
    assert everything.all()
    assert torch.equal(nothing_new, labels < K * C_OLD)


def test_a_draw_equal_to_the_rate_drops_the_view() -> None:
    rate = torch.rand(1, generator=generator())[0]
    assert not kept_views(torch.tensor([5]), 0, rate, generator=generator())


def test_the_share_of_new_views_kept_is_the_rate() -> None:
    labels = torch.full((20_000,), K * C_OLD)
    kept = kept_views(labels, K * C_OLD, torch.tensor(0.62), generator=generator())
    assert kept.double().mean().item() == pytest.approx(0.62, abs=0.02)


def test_draws_advance_the_generator_alike_whatever_is_old() -> None:
    first, second = generator(), generator()
    kept_views(torch.zeros(9), 1, torch.tensor(1.0), generator=first)
    kept_views(torch.ones(9), 1, torch.tensor(0.3), generator=second)
    assert torch.equal(first.get_state(), second.get_state())


def test_draws_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    kept_views(torch.zeros(9), 1, torch.tensor(0.5), generator=generator())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("per", ["kept", "all"])
@settings(deadline=None)
@given(rows=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_loss_is_eq_10(per: Per, rows: int, seed: int) -> None:
    g = generator(seed)
    logits = torch.randn(rows, 5, dtype=torch.float64, generator=g)
    labels = torch.randint(5, (rows,), generator=g)
    kept = torch.rand(rows, generator=g) < 0.6
    loss = balanced_cross_entropy(logits, labels, kept, per=per)
    expected = slow_balanced_cross_entropy(logits, labels, kept, per)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_loss_of_uniform_scores_is_the_log_of_the_classes_per_kept_view() -> None:
    logits, labels = torch.zeros(4, 8), torch.arange(4)
    kept = torch.tensor([True, False, False, False])
    assert balanced_cross_entropy(logits, labels, kept).item() == pytest.approx(math.log(8))
    per_view = balanced_cross_entropy(logits, labels, kept, per="all").item()
    assert per_view == pytest.approx(math.log(8) / 4)


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("per", ["kept", "all"])
def test_loss_without_a_kept_view_is_zero_and_can_be_differentiated(per: Per, rows: int) -> None:
    logits = torch.randn(rows, 5, generator=generator()).requires_grad_()
    labels, kept = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows, dtype=torch.bool)
    loss = balanced_cross_entropy(logits, labels, kept, per=per)
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_dropped_views_receive_no_gradient() -> None:
    logits = torch.zeros(2, 3, requires_grad=True)
    balanced_cross_entropy(logits, torch.tensor([0, 1]), torch.tensor([True, False])).backward()
    assert logits.grad is not None
    assert (logits.grad[0] != 0).all()
    assert (logits.grad[1] == 0).all()


def test_loss_refuses_an_unknown_divisor() -> None:
    kept = torch.ones(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="per must be 'kept' or 'all', got 'view'"):
        balanced_cross_entropy(
            torch.zeros(2, 3),
            torch.zeros(2, dtype=torch.int64),
            kept,
            per="view",  # type: ignore[arg-type] # the wrong value is the point
        )


# Operations whose result the host must wait for: .item(), bool(), and indexing by a mask.
WAITING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal"}


def operations(act: Callable[[], object]) -> set[str]:
    # torch.profiler would import the compiler, which takes seconds.
    with torch.autograd.profiler.profile() as profile:
        act()
    return {event.name for event in profile.function_events}


def test_the_profiler_sees_operations_that_wait_for_the_device() -> None:
    mask = torch.ones(3) > 0
    assert operations(lambda: mask.any().item()) & WAITING
    assert operations(lambda: mask[mask]) & WAITING


def test_no_step_of_wabs_waits_for_the_device() -> None:
    def step() -> None:
        labels = extended_labels(torch.arange(5), K)
        rate = keep_rate(torch.zeros(20, 3), 8, 0.5)
        kept = kept_views(labels, 8, rate, generator=generator())
        balanced_cross_entropy(torch.zeros(20, 20), labels, kept)

    names = operations(step)
    assert "aten::sigmoid" in names
    assert not names & WAITING
