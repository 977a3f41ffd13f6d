import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from oclgrid.trainables.maths.centres import class_centres, mean_distance, whitening

SEEDS = st.integers(0, 10**6)


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def covariance(features_ND: Tensor, divisor: int) -> Tensor:
    rows = features_ND.tolist()
    n, d = len(rows), len(rows[0])
    mean = [sum(row[i] for row in rows) / n for i in range(d)]
    return torch.tensor(
        [
            [
                sum((row[i] - mean[i]) * (row[j] - mean[j]) for row in rows) / divisor
                for j in range(d)
            ]
            for i in range(d)
        ],
        dtype=torch.float64,
    )


def slow_centres(features_NKD: Tensor, labels_N: Tensor, classes: int) -> list[list[list[float]]]:
    _, k_count, d_count = features_NKD.shape
    rows, labels = features_NKD.tolist(), labels_N.tolist()
    centres = []
    for c in range(classes):
        own = [row for row, y in zip(rows, labels, strict=True) if y == c]
        centres.append(
            [
                [
                    sum(row[k][d] for row in own) / len(own) if own else math.inf
                    for d in range(d_count)
                ]
                for k in range(k_count)
            ]
        )
    return centres


def slow_mahalanobis(f: list[float], m: list[float], inverse_DD: Tensor) -> float:
    gap = torch.tensor(f, dtype=torch.float64) - torch.tensor(m, dtype=torch.float64)
    return math.sqrt(max(0.0, (gap @ inverse_DD @ gap).item()))


def slow_mean_distance(
    features_NKD: Tensor, centres_CKD: Tensor, inverse_DD: Tensor
) -> list[list[float]]:
    return [
        [
            sum(slow_mahalanobis(f, m, inverse_DD) for f, m in zip(row, centre, strict=True))
            / len(row)
            for centre in centres_CKD.tolist()
        ]
        for row in features_NKD.tolist()
    ]


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(1, 3), st.integers(1, 5), SEEDS)
def test_centres_are_the_means_of_eq_13(rows: int, k: int, classes: int, seed: int) -> None:
    features = normal(rows, k, 3, seed=seed)
    labels = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(seed))
    expected = torch.tensor(slow_centres(features, labels, classes), dtype=torch.float64)
    torch.testing.assert_close(class_centres(features, labels, classes), expected)


def test_centres_of_a_single_class_are_the_mean_of_all_images() -> None:
    features = normal(6, 4, 3, seed=0)
    centres = class_centres(features, torch.zeros(6, dtype=torch.int64), 1)
    torch.testing.assert_close(centres[0], features.mean(dim=0))


def test_a_class_without_images_is_infinitely_far_and_the_others_are_not() -> None:
    features = normal(4, 2, 3, seed=0)
    centres = class_centres(features, torch.tensor([0, 0, 2, 2]), 4)
    distances = mean_distance(features, centres)
    assert distances[:, [1, 3]].isposinf().all()
    assert distances[:, [0, 2]].isfinite().all()


def test_a_class_without_images_stays_unreachable_when_centres_are_normalised_or_whitened() -> None:
    features = normal(8, 1, 3, seed=0)
    centres = class_centres(features, torch.tensor([0, 0, 0, 0, 2, 2, 2, 2]), 3)
    a = whitening(features[:, 0], 1e-5)
    for changed, probes in [
        (normalize(centres, dim=-1), normalize(features, dim=-1)),
        (centres @ a, features @ a),
    ]:
        distances = mean_distance(probes, changed)
        assert distances[:, 1].isposinf().all()
        assert distances[:, [0, 2]].isfinite().all()


def test_without_any_image_every_class_is_infinitely_far() -> None:
    centres = class_centres(torch.zeros(0, 2, 3), torch.zeros(0, dtype=torch.int64), 2)
    assert mean_distance(torch.ones(5, 2, 3), centres).isposinf().all()


@pytest.mark.parametrize("label", [-1, 2])
def test_centres_refuse_a_label_outside_the_classes(label: int) -> None:
    with pytest.raises(ValueError, match=r"labels_N must lie in \[0, 2\)"):
        class_centres(torch.zeros(2, 1, 3), torch.tensor([0, label]), 2)


def test_mahalanobis_distance_of_four_points_matches_the_hand_computed_value() -> None:
    r = torch.tensor([[0, 0], [2, 0], [0, 1], [2, 1.5]])
    a = whitening(r, 1e-5)
    expected = torch.tensor([[1.333333, 0.166667], [0.166667, 0.5625]], dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.inv(a @ a.T), expected, atol=1e-6, rtol=0)
    probe, origin = torch.tensor([[[1.0, 1.0]]]).double(), torch.zeros(1, 1, 2).double()
    distance = mean_distance(probe @ a, origin @ a)
    assert distance.item() == pytest.approx(1.470871, abs=1e-6)


@settings(deadline=None)
@given(st.integers(2, 12), st.integers(1, 6), SEEDS)
def test_whitening_factorises_the_pseudo_inverse_of_any_rank(rows: int, d: int, seed: int) -> None:
    # With rows <= d the covariance has rank rows - 1 at most.
    features = normal(rows, d, seed=seed)
    a = whitening(features, 1e-9)
    inverse = torch.linalg.pinv(covariance(features, rows - 1), rtol=1e-9, hermitian=True)
    torch.testing.assert_close(a @ a.T, inverse, rtol=1e-5, atol=1e-8)
    assert a.shape[1] <= min(d, rows - 1)


def test_whitening_drops_the_directions_in_which_features_do_not_vary() -> None:
    features = normal(20, 2, seed=0) @ normal(2, 6, seed=1) + 5
    a = whitening(features, 1e-5)
    assert a.shape == (6, 2)
    torch.testing.assert_close(covariance(features @ a, 19), torch.eye(2, dtype=torch.float64))


def test_whitening_drops_an_eigenvalue_that_equals_the_cutoff() -> None:
    # Eigenvalues 1 and 1/4 exactly, up to a common factor.
    features = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert whitening(features, 0.25).shape == (2, 1)
    assert whitening(features, 0.2499).shape == (2, 2)


@pytest.mark.parametrize("cutoff", [0.0, 1e-5])
def test_whitening_of_equal_rows_keeps_no_direction_and_distances_stay_finite(
    cutoff: float,
) -> None:
    a = whitening(torch.full((7, 3), 0.1, dtype=torch.float64), cutoff)
    assert a.shape == (3, 0)
    probe = torch.ones(2, 1, 3).double()
    assert (mean_distance(probe @ a, probe @ a) == 0).all()


def test_whitening_works_in_float64_whatever_it_is_given() -> None:
    assert whitening(torch.eye(3), 1e-5).dtype == torch.float64


def test_whitening_refuses_one_row_and_a_cutoff_outside_its_range() -> None:
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        whitening(torch.ones(1, 3), 1e-5)
    with pytest.raises(ValueError, match=r"cutoff must lie in \[0, 1\), got 1"):
        whitening(torch.eye(3), 1.0)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), SEEDS)
def test_euclidean_distance_is_eq_14_with_the_identity(n: int, c: int, k: int, seed: int) -> None:
    features, centres = normal(n, k, 3, seed=seed), normal(c, k, 3, seed=seed + 1)
    identity = torch.eye(3, dtype=torch.float64)
    expected = torch.tensor(slow_mean_distance(features, centres, identity), dtype=torch.float64)
    torch.testing.assert_close(mean_distance(features, centres), expected)


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(1, 4), SEEDS)
def test_mahalanobis_distance_is_eq_14_with_the_pseudo_inverse(n: int, k: int, seed: int) -> None:
    features, probes = normal(n, k, 4, seed=seed), normal(3, k, 4, seed=seed + 1)
    labels = torch.arange(n) % 2
    pooled = features.flatten(0, 1)
    inverse = torch.linalg.pinv(covariance(pooled, len(pooled) - 1), rtol=1e-9, hermitian=True)
    centres = torch.tensor(slow_centres(features, labels, 2), dtype=torch.float64)
    expected = torch.tensor(slow_mean_distance(probes, centres, inverse), dtype=torch.float64)

    a = whitening(pooled, 1e-9)
    distances = mean_distance(probes @ a, class_centres(features @ a, labels, 2))
    torch.testing.assert_close(distances, expected, rtol=1e-5, atol=1e-6)


def test_the_root_is_taken_before_the_mean_over_rotations() -> None:
    features = torch.tensor([[[3.0], [4.0]]])
    assert mean_distance(features, torch.zeros(1, 2, 1)) == 3.5


@settings(deadline=None)
@given(st.integers(1, 5), SEEDS)
def test_distance_of_centres_to_themselves_is_never_nan(classes: int, seed: int) -> None:
    # Rounding makes some of these squares negative before they are clamped.
    centres = (1e3 * normal(classes, 2, 7, seed=seed)).float()
    distances = mean_distance(centres, centres)
    assert not distances.isnan().any()
    assert (distances.diagonal() < 3).all()


def test_a_large_common_offset_costs_no_accuracy_in_float32() -> None:
    features, centres = normal(5, 2, 8, seed=0).float(), normal(3, 2, 8, seed=1).float()
    offset = 1024.0
    # Rounded to what float32 can hold beside the offset, so that only the distance can err.
    features, centres = (features * 64).round() / 64, (centres * 64).round() / 64
    shifted = mean_distance(features + offset, centres + offset)
    torch.testing.assert_close(shifted, mean_distance(features, centres), rtol=1e-4, atol=0)
