import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from oclgrid.trainables.maths.contrast import direction_spread, negative_cosine, supcon

GOLDEN_Z = torch.tensor(
    [
        [[1, 0, 0], [0.8, 0.6, 0]],
        [[0, 1, 0], [0, 0.6, 0.8]],
        [[0, 0, 1], [0.6, 0, 0.8]],
    ],
    dtype=torch.float64,
)
GOLDEN_LABELS = torch.tensor([0, 1, 0])


def views(images: int, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(images, count, 5, dtype=torch.float64, generator=generator)
    return normalize(raw, dim=-1)


def labels(images: int, seed: int) -> Tensor:
    return torch.randint(3, (images,), generator=torch.Generator().manual_seed(seed))


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def slow_supcon(z_NVP: Tensor, labels_N: Tensor, temperature: float) -> float:
    vectors = [
        (z, y) for row, y in zip(z_NVP.tolist(), labels_N.tolist(), strict=True) for z in row
    ]
    total = 0.0
    for a, (z_a, y_a) in enumerate(vectors):
        others = [v for b, v in enumerate(vectors) if b != a]
        denominator = sum(math.exp(dot(z_a, z_b) / temperature) for z_b, _ in others)
        positives = [z_p for z_p, y_p in others if y_p == y_a]
        terms = [dot(z_a, z_p) / temperature - math.log(denominator) for z_p in positives]
        total -= sum(terms) / len(positives)
    return total / len(vectors)


def slow_negative_cosine(p_NP: Tensor, z_NP: Tensor) -> float:
    cosines = [
        dot(p, z) / math.sqrt(dot(p, p) * dot(z, z))
        for p, z in zip(p_NP.tolist(), z_NP.tolist(), strict=True)
    ]
    return -sum(cosines) / len(cosines)


@pytest.mark.parametrize(
    ("temperature", "expected"), [(0.1, 3.074231), (0.07, 4.143879), (1.0, 1.538719)]
)
def test_supcon_of_three_images_matches_the_reference(temperature: float, expected: float) -> None:
    loss = supcon(GOLDEN_Z, GOLDEN_LABELS, temperature)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(2, 4), st.floats(0.05, 5), st.integers(0, 10**6))
def test_supcon_is_its_formula(images: int, count: int, temperature: float, seed: int) -> None:
    z, y = views(images, count, seed), labels(images, seed)
    expected = slow_supcon(z, y, temperature)
    assert supcon(z, y, temperature).item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(0, 10**6))
def test_supcon_ignores_the_order_of_images_and_views(images: int, seed: int) -> None:
    z, y = views(images, 3, seed), labels(images, seed)
    order = torch.randperm(images, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(supcon(z[order].flip(1), y[order], 0.1), supcon(z, y, 0.1))


def test_supcon_of_one_image_with_two_views_is_zero() -> None:
    assert supcon(views(1, 2, seed=0), torch.tensor([0]), 0.1) == 0


def test_supcon_falls_when_the_views_of_a_class_meet() -> None:
    e1, e2 = torch.eye(2)
    apart = torch.stack([torch.stack([e1, e2]), torch.stack([e2, e1])])
    together = torch.stack([torch.stack([e1, e1]), torch.stack([e2, e2])])
    y = torch.tensor([0, 1])
    assert supcon(together, y, 0.1) < supcon(apart, y, 0.1)


def test_supcon_and_its_gradient_survive_a_temperature_that_would_overflow_exp() -> None:
    z = views(4, 2, seed=1).float().requires_grad_()
    loss = supcon(z, torch.tensor([0, 1, 0, 2]), 1e-3)
    loss.backward()
    assert loss.isfinite()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_supcon_has_the_gradient_of_its_formula() -> None:
    z = views(3, 2, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: supcon(z, GOLDEN_LABELS, 0.5), (z,))


@pytest.mark.parametrize("shape", [(3, 1, 5), (0, 2, 5)])
def test_supcon_refuses_anchors_without_a_positive(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1 image and 2 views"):
        supcon(torch.ones(shape), torch.zeros(shape[0], dtype=torch.int64), 0.1)


def test_negative_cosine_of_two_rows_matches_the_hand_computed_value() -> None:
    p = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    z = torch.tensor([[2.0, 1.0], [1.0, 1.0]])
    assert negative_cosine(p, z).item() == pytest.approx(-0.753553, abs=1e-6)


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(0, 10**6), st.floats(0.01, 100))
def test_negative_cosine_is_its_formula_and_ignores_length(
    rows: int, seed: int, scale: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    p, z = torch.randn(2, rows, 4, dtype=torch.float64, generator=generator)
    expected = pytest.approx(slow_negative_cosine(p, z), abs=1e-9)
    assert negative_cosine(p, z).item() == expected
    assert negative_cosine(scale * p, z).item() == expected


def test_negative_cosine_is_minus_one_for_equal_directions_and_one_for_opposite_ones() -> None:
    p = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    assert negative_cosine(p, 2 * p).item() == pytest.approx(-1)
    assert negative_cosine(p, -p).item() == pytest.approx(1)


def test_negative_cosine_sends_a_gradient_to_predictions_only() -> None:
    p = torch.tensor([[1.0, 2.0]], requires_grad=True)
    z = torch.tensor([[2.0, 1.0]], requires_grad=True)
    negative_cosine(p, z).backward()
    assert p.grad is not None
    assert p.grad.abs().sum() > 0
    assert z.grad is None


def test_negative_cosine_of_a_zero_row_is_finite() -> None:
    assert negative_cosine(torch.zeros(1, 3), torch.ones(1, 3)) == 0


@given(rows=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_direction_spread_is_the_root_of_the_variance_of_unit_rows(rows: int, seed: int) -> None:
    z = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed)).double()
    units = [[x / math.hypot(*row) for x in row] for row in z.tolist()]
    means = [math.fsum(column) / rows for column in zip(*units, strict=True)]
    variance = math.fsum((x - m) ** 2 for row in units for x, m in zip(row, means, strict=True))
    expected = math.sqrt(variance / rows)
    assert float(direction_spread(z)) == pytest.approx(expected, abs=1e-6)


def test_direction_spread_is_nought_for_parallel_rows_and_one_for_balanced_ones() -> None:
    assert float(direction_spread(torch.tensor([[1.0, 2.0], [2.0, 4.0]]))) < 1e-3
    assert float(direction_spread(torch.tensor([[1.0, 2.0], [-3.0, -6.0]]))) == 1
