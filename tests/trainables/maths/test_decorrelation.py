import math
import statistics

import pytest
import torch

from oclgrid.trainables.maths.decorrelation import barlow_twins, distillation

Z1 = torch.tensor([[1.0, 0], [0, 1], [2, 1], [1, 3]])
Z2 = torch.tensor([[1.0, 1], [0, 2], [2, 0], [1, 2]])
NOW = torch.tensor([[1.0, 0, -1], [0, 2, 0]])
STORED = torch.tensor([[0.5, 0.5, 0], [0, 1, 1]])
BOTH = torch.tensor([True, True])


def slow_barlow(z1: list[list[float]], z2: list[list[float]]) -> float:
    """The loss entry by entry, with the unbiased deviation."""
    n, width = len(z1), len(z1[0])

    def column(z: list[list[float]], d: int) -> list[float]:
        values = [row[d] for row in z]
        mean, spread = statistics.mean(values), statistics.stdev(values)
        return [(v - mean) / spread for v in values]

    total = 0.0
    for d in range(width):
        for e in range(width):
            c = sum(a * b for a, b in zip(column(z1, d), column(z2, e), strict=True)) / n
            total += (c - 1) ** 2 if d == e else 2e-3 * c**2
    return total


def kl(now: list[float], then: list[float], temperature: float) -> float:
    """Sum over classes of t (log t - log s) for one image."""

    def softmax(z: list[float]) -> list[float]:
        powers = [math.exp(v / temperature) for v in z]
        return [p / sum(powers) for p in powers]

    pairs = zip(softmax(then), softmax(now), strict=True)
    return sum(t * (math.log(t) - math.log(s)) for t, s in pairs)


def test_barlow_twins_of_the_stated_case() -> None:
    assert float(barlow_twins(Z1, Z2)) == pytest.approx(0.468896, abs=1e-6)


def test_barlow_twins_is_the_sum_written_out() -> None:
    generator = torch.Generator().manual_seed(0)
    z1, z2 = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    assert float(barlow_twins(z1, z2)) == pytest.approx(slow_barlow(z1.tolist(), z2.tolist()))


def test_barlow_twins_ignores_the_scale_and_shift_of_a_feature() -> None:
    moved = Z1 * torch.tensor([3.0, 0.5]) + torch.tensor([1.0, -2.0])
    assert float(barlow_twins(moved, Z2)) == pytest.approx(float(barlow_twins(Z1, Z2)), rel=1e-5)


def test_a_feature_that_never_varies_gives_a_finite_loss_and_gradient() -> None:
    z = torch.cat([Z1, torch.ones(4, 1)], dim=1).requires_grad_()
    loss = barlow_twins(z, z)
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss.isfinite()
    assert gradient.isfinite().all()


def test_distillation_of_the_stated_case() -> None:
    assert float(distillation(NOW, STORED, BOTH, 2.0)) == pytest.approx(0.047269, abs=1e-6)


def test_distillation_is_the_number_of_images_times_the_mean_over_entries() -> None:
    total = sum(kl(a, b, 1.5) for a, b in zip(NOW.tolist(), STORED.tolist(), strict=True))
    expected = 2 * total / (2 * 3)
    assert float(distillation(NOW, STORED, BOTH, 1.5)) == pytest.approx(expected, rel=1e-5)


def test_images_without_logits_of_their_own_do_not_count() -> None:
    first = torch.tensor([True, False])
    alone = distillation(NOW[:1], STORED[:1], BOTH[:1], 2.0)
    assert float(distillation(NOW, STORED, first, 2.0)) == pytest.approx(float(alone), rel=1e-5)


def test_distillation_of_no_image_is_zero_with_a_graph() -> None:
    z = NOW.clone().requires_grad_()
    loss = distillation(z, STORED, ~BOTH, 2.0)
    (gradient,) = torch.autograd.grad(loss, z)
    assert float(loss.detach()) == 0
    assert not gradient.any()


def test_logits_that_have_not_moved_distil_nothing() -> None:
    assert float(distillation(NOW, NOW, BOTH, 2.0)) == pytest.approx(0, abs=1e-7)
