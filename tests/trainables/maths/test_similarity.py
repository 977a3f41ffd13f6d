import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oclgrid.trainables.maths.similarity import linear_cka, seen_and_unseen

SEEDS = st.integers(0, 10**6)
R1 = torch.tensor([[1.0, 0], [0, 1], [2, 2], [3, 1]])
R2 = torch.tensor([[1.0, 1], [0, 2], [2, 0], [4, 1]])


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def slow_cka(r1_ND: Tensor, r2_NE: Tensor) -> float:
    def columns(r: Tensor) -> list[list[float]]:
        return [[x - sum(column) / len(column) for x in column] for column in r.T.tolist()]

    def squared_norm(a: list[list[float]], b: list[list[float]]) -> float:
        """Squared Frobenius norm of a^T b, for matrices given by their columns."""
        return sum(sum(x * y for x, y in zip(u, v, strict=True)) ** 2 for u in a for v in b)

    a, b = columns(r1_ND), columns(r2_NE)
    return squared_norm(a, b) / math.sqrt(squared_norm(a, a) * squared_norm(b, b))


def test_cka_of_four_images_matches_the_hand_computed_value() -> None:
    assert linear_cka(R1, R2) == pytest.approx(0.920856, abs=1e-6)


def test_cka_of_features_with_themselves_is_one() -> None:
    assert linear_cka(R1, R1) == pytest.approx(1)


@settings(deadline=None)
@given(st.integers(2, 9), st.integers(1, 5), st.integers(1, 5), SEEDS)
def test_cka_is_eq_17_and_lies_between_zero_and_one(n: int, d: int, e: int, seed: int) -> None:
    r1, r2 = normal(n, d, seed=seed), normal(n, e, seed=seed + 1)
    cka = linear_cka(r1, r2)
    assert cka == pytest.approx(slow_cka(r1, r2), rel=1e-9, abs=1e-12)
    assert 0 <= cka <= 1 + 1e-9


@settings(deadline=None)
@given(SEEDS, st.floats(0.01, 100), st.floats(-10, 10))
def test_cka_ignores_rotation_scale_shift_and_order(seed: int, scale: float, shift: float) -> None:
    r1, r2 = normal(8, 3, seed=seed), normal(8, 4, seed=seed + 1)
    rotation, _ = torch.linalg.qr(normal(3, 3, seed=seed + 2))
    cka = pytest.approx(linear_cka(r1, r2), rel=1e-6, abs=1e-9)
    assert linear_cka(scale * r1 @ rotation + shift, r2) == cka
    assert linear_cka(r2, r1) == cka
    assert linear_cka(r1.flip(0), r2.flip(0)) == cka


def test_cka_of_features_that_share_no_direction_is_zero() -> None:
    r1 = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]])
    r2 = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]])
    assert linear_cka(r1, r2) == 0


def test_cka_with_features_equal_for_all_images_is_nan() -> None:
    # The mean of seven times 0.1 is not 0.1 in float64; rounding must not pass for spread.
    constant = torch.full((7, 3), 0.1, dtype=torch.float64)
    assert math.isnan(linear_cka(constant, normal(7, 2, seed=0)))


def test_cka_of_rank_deficient_features_is_finite() -> None:
    wide = normal(4, 1, seed=0) @ normal(1, 50, seed=1)
    assert linear_cka(wide, wide) == pytest.approx(1)


def test_cka_refuses_features_of_different_images() -> None:
    with pytest.raises(ValueError, match="same images, got 4 and 3"):
        linear_cka(R1, R2[:3])


def test_seen_stages_are_those_up_to_the_earlier_backbone() -> None:
    # Two pairs of stages, three stages of data: seen are (1, 1), (2, 1) and (2, 2).
    table = torch.tensor([[0.9, 0.1, 0.3], [0.8, 0.7, 0.2]], dtype=torch.float64)
    seen, unseen = seen_and_unseen(table)
    assert seen == pytest.approx((0.9 + 0.8 + 0.7) / 3)
    assert unseen == pytest.approx((0.1 + 0.3 + 0.2) / 3)


def test_five_stages_have_ten_seen_and_ten_unseen_cells() -> None:
    table = torch.tensor([[float(s <= t) for s in range(5)] for t in range(4)])
    assert seen_and_unseen(table) == (1, 0)
    table[3, 4] = 1
    assert seen_and_unseen(table)[1] == pytest.approx(1 / 10)
