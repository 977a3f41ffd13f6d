import math

import pytest
import torch

from oclgrid.trainables.maths.similarity import largest_cosine


def test_each_gradient_is_scored_by_the_subset_it_is_most_like() -> None:
    generator = torch.Generator().manual_seed(0)
    v, g = (torch.randn(n, 4, generator=generator) for n in (3, 5))
    found = largest_cosine(v, g)
    for i, a in enumerate(v.tolist()):
        cosines = []
        for b in g.tolist():
            inner = sum(x * y for x, y in zip(a, b, strict=True))
            lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
            cosines.append(inner / max(lengths, 1e-8))
        assert float(found[i]) == pytest.approx(max(cosines), rel=1e-5)


def test_a_gradient_of_zeros_is_like_nothing() -> None:
    assert largest_cosine(torch.zeros(1, 3), torch.ones(2, 3)).tolist() == [0]


def test_a_gradient_against_all_subsets_scores_below_zero() -> None:
    assert float(largest_cosine(-torch.ones(1, 3), torch.ones(2, 3))) == pytest.approx(-1)
