import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oclgrid.trainables.maths.spectrum import participation, scree

SEEDS = st.integers(0, 10**6)


def normal(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def test_eigenvalues_of_features_on_two_axes_are_their_variances() -> None:
    features = torch.tensor([[3.0, 4], [3, -4], [-3, 4], [-3, -4]])  # every norm is 5
    expected = [4 * 16 / 25 / 3, 4 * 9 / 25 / 3]
    assert scree(features, 40).tolist() == pytest.approx(expected)


@settings(deadline=None)
@given(st.integers(2, 8), st.integers(1, 5), SEEDS)
def test_eigenvalues_descend_and_add_up_to_the_variance(n: int, d: int, seed: int) -> None:
    features = normal(n, d, seed=seed)
    largest = max(math.sqrt(sum(x * x for x in row)) for row in features.tolist())
    variance = 0.0
    for column in features.T.tolist():
        mean = sum(column) / n
        variance += sum((x - mean) ** 2 for x in column) / (n - 1) / largest**2
    values = scree(features, d).tolist()
    assert len(values) == d
    assert values == sorted(values, reverse=True)
    assert min(values) >= 0
    assert sum(values) == pytest.approx(variance, abs=1e-12)


@settings(deadline=None)
@given(SEEDS, st.floats(0.01, 100))
def test_scale_and_rotation_of_features_leave_the_eigenvalues(seed: int, scale: float) -> None:
    features = normal(9, 4, seed=seed)
    rotation, _ = torch.linalg.qr(normal(4, 4, seed=seed + 1))
    turned = scree(scale * features @ rotation, 4)
    assert turned.tolist() == pytest.approx(scree(features, 4).tolist(), abs=1e-9)


def test_only_the_largest_are_returned() -> None:
    features = normal(50, 6, seed=0)
    assert scree(features, 2).tolist() == scree(features, 6).tolist()[:2]


def test_features_that_are_all_zero_have_no_variance() -> None:
    assert scree(torch.zeros(3, 2), 2).tolist() == [0, 0]


def test_one_image_has_no_covariance() -> None:
    with pytest.raises(ValueError, match="at least 2 rows"):
        scree(torch.ones(1, 3), 2)


def test_participation_counts_equal_shares_and_sees_a_single_direction() -> None:
    assert participation(torch.tensor([2.0, 2, 2])) == pytest.approx(3)
    assert participation(torch.tensor([5.0, 0, 0])) == pytest.approx(1)
    assert participation(torch.tensor([3.0, 1])) == pytest.approx(16 / 10)
    assert math.isnan(participation(torch.zeros(3)))
