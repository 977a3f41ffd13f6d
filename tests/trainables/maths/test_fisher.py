import pytest
import torch

from oclgrid.trainables.maths.fisher import (
    normalised_fisher,
    penalty,
    penalty_gradient,
    updated_fisher,
)


def test_a_constant_squared_gradient_gives_the_stated_averages() -> None:
    """The update of a step comes before that step's accumulation, so the first has 49 terms."""
    s, running, accumulated, after = 2.0, torch.zeros(1), torch.zeros(1), {}
    for step in range(1, 101):
        if step % 50 == 0:
            running = updated_fisher(running, accumulated, alpha=0.9, period=50)
            accumulated = torch.zeros(1)
            after[step] = float(running)
        accumulated = accumulated + s
    assert after == {50: pytest.approx(0.882 * s), 100: pytest.approx(0.9882 * s)}


def test_the_newest_period_weighs_alpha() -> None:
    found = updated_fisher(torch.tensor([3.0]), torch.tensor([8.0]), alpha=0.25, period=4)
    assert float(found) == pytest.approx(0.75 * 3 + 0.25 * 2)


def test_normalised_information_reaches_from_zero_to_one() -> None:
    assert normalised_fisher(torch.tensor([3.0, 1.0, 2.0])).tolist() == [1, 0, 0.5]


def test_equal_information_is_no_information() -> None:
    assert normalised_fisher(torch.zeros(3)).tolist() == [0, 0, 0]
    assert normalised_fisher(torch.full((3,), 5.0)).tolist() == [0, 0, 0]


def test_the_penalty_is_the_weighted_square_of_the_shift() -> None:
    found = penalty(torch.tensor([1.0, 0.5]), torch.tensor([2.0, -4.0]), 3.0)
    assert float(found) == pytest.approx(3 * (1 * 4 + 0.5 * 16))


def test_the_gradient_is_that_of_the_penalty() -> None:
    generator = torch.Generator().manual_seed(0)
    fisher, anchor = torch.rand(2, 6, generator=generator)
    theta = torch.rand(6, generator=generator, requires_grad=True)
    (expected,) = torch.autograd.grad(penalty(fisher, theta - anchor, 1.7), theta)
    assert torch.allclose(penalty_gradient(fisher, theta.detach() - anchor, 1.7), expected)
