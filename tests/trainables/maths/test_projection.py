import pytest
import torch

from oclgrid.trainables.maths.projection import projected


def test_the_part_against_the_reference_is_taken_out() -> None:
    found = projected(torch.tensor([1.0, 2.0]), torch.tensor([-1.0, 0.0]))
    assert found.tolist() == [0, 2]


def test_a_gradient_that_agrees_is_left_alone() -> None:
    gradient = torch.tensor([1.0, 2.0])
    assert torch.equal(projected(gradient, torch.tensor([1.0, 0.0])), gradient)


def test_an_orthogonal_gradient_is_left_alone() -> None:
    gradient = torch.tensor([1.0, 2.0])
    assert torch.equal(projected(gradient, torch.tensor([2.0, -1.0])), gradient)


def test_a_reference_of_zeros_changes_nothing() -> None:
    gradient = torch.tensor([1.0, 2.0])
    assert torch.equal(projected(gradient, torch.zeros(2)), gradient)


@pytest.mark.parametrize("seed", range(6))
def test_projection_is_the_formula_written_out(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    g, r = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    inner = sum(a * b for a, b in zip(g.tolist(), r.tolist(), strict=True))
    length = sum(b * b for b in r.tolist())
    share = inner / length if inner < 0 else 0.0
    expected = [a - share * b for a, b in zip(g.tolist(), r.tolist(), strict=True)]
    assert projected(g, r).tolist() == pytest.approx(expected)


def test_after_a_projection_nothing_points_against_the_reference() -> None:
    generator = torch.Generator().manual_seed(0)
    r = torch.randn(7, generator=generator, dtype=torch.float64)
    g = torch.randn(7, generator=generator, dtype=torch.float64) - r
    assert float(g @ r) < 0
    assert float(projected(g, r) @ r) == pytest.approx(0, abs=1e-12)


def test_a_reference_too_small_to_square_gives_no_nan() -> None:
    found = projected(torch.tensor([-1.0, 2.0]), torch.tensor([1e-25, 0.0]))
    assert found.isfinite().all()
