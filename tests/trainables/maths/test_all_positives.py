import math

import pytest
import torch

from oclgrid.trainables.maths.contrast import mean_negative_cosine, negative_cosine


def views(seed: int, shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(shape, generator=generator) for _ in range(2))  # type: ignore[return-value]  # two


def cosine(a: list[float], b: list[float]) -> float:
    inner = sum(x * y for x, y in zip(a, b, strict=True))
    return inner / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def test_every_other_view_of_an_image_is_a_positive() -> None:
    p, z = views(0, (3, 4, 5))
    terms = [
        -cosine(p[i, a].tolist(), z[i, b].tolist())
        for i in range(3)
        for a in range(4)
        for b in range(4)
        if a != b
    ]
    assert float(mean_negative_cosine(p, z)) == pytest.approx(sum(terms) / len(terms), rel=1e-5)


def test_of_two_views_each_has_the_other_as_its_positive() -> None:
    p, z = views(1, (3, 2, 5))
    pairs = negative_cosine(p[:, 0], z[:, 1]) + negative_cosine(p[:, 1], z[:, 0])
    assert float(mean_negative_cosine(p, z)) == pytest.approx(float(pairs) / 2, rel=1e-5)


def test_no_gradient_reaches_the_targets() -> None:
    p, z = (t.requires_grad_() for t in views(2, (2, 4, 3)))
    into_p, into_z = torch.autograd.grad(mean_negative_cosine(p, z), (p, z), allow_unused=True)
    assert into_p.abs().sum() > 0
    assert into_z is None
