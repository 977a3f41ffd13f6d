import itertools
import math

import pytest
import torch

from oclgrid.trainables.maths.shapley import knn_shapley, squared_distances

LINE = torch.tensor([[0.1], [0.9], [0.4], [2.0]])
LINE_LABELS = torch.tensor([0, 1, 1, 0])


def line(neighbours: int) -> torch.Tensor:
    """Values of four candidates on a line for the points 0 (label 0) and 1 (label 1)."""
    return knn_shapley(
        torch.tensor([[0.0], [1.0]]),
        torch.tensor([0, 1]),
        LINE,
        candidate_labels_N=LINE_LABELS,
        neighbours=neighbours,
    )


def utility(subset: tuple[int, ...], distances: list[float], hits: list[int], k: int) -> float:
    """What KNN gets right with these candidates alone: hits among the k nearest, over k."""
    nearest = sorted(subset, key=lambda i: distances[i])[:k]
    return sum(hits[i] for i in nearest) / k


def by_permutations(distances: list[float], hits: list[int], k: int) -> list[float]:
    """The definition: what a candidate adds when it joins, over all orders of joining."""
    n = len(hits)
    values = [0.0] * n
    for order in itertools.permutations(range(n)):
        for place, i in enumerate(order):
            before = utility(order[:place], distances, hits, k)
            values[i] += utility(order[: place + 1], distances, hits, k) - before
    return [v / math.factorial(n) for v in values]


def by_subsets(distances: list[float], hits: list[int], k: int) -> list[float]:
    """The definition again, weighted by how many orders a subset stands for."""
    n, values = len(hits), []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        total = 0.0
        for size in range(n):
            weight = math.factorial(size) * math.factorial(n - 1 - size) / math.factorial(n)
            for subset in itertools.combinations(others, size):
                gain = utility((*subset, i), distances, hits, k)
                total += weight * (gain - utility(subset, distances, hits, k))
        values.append(total)
    return values


def game(seed: int, candidates: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    points, features = (torch.randn(n, 3, generator=generator) for n in (4, candidates))
    labels, own = (torch.randint(2, (n,), generator=generator) for n in (4, candidates))
    return points, labels, features, own


def test_values_of_the_line_with_three_neighbours() -> None:
    expected = [[0.25, -1 / 12, -1 / 12, 0.25], [0, 1 / 3, 1 / 3, 0]]
    assert torch.allclose(line(3), torch.tensor(expected).double())


def test_values_of_the_line_with_one_neighbour() -> None:
    expected = [[11 / 12, -1 / 12, -1 / 12, 0.25], [0, 0.5, 0.5, 0]]
    assert torch.allclose(line(1), torch.tensor(expected).double())


@pytest.mark.parametrize(("neighbours", "sums"), [(3, [1 / 3, 2 / 3]), (1, [1.0, 1.0])])
def test_rows_of_the_line_sum_to_the_utility(neighbours: int, sums: list[float]) -> None:
    assert line(neighbours).sum(1).tolist() == pytest.approx(sums)


@pytest.mark.parametrize("neighbours", [1, 2, 3, 5])
@pytest.mark.parametrize("definition", [by_permutations, by_subsets])
def test_values_are_the_shapley_values_of_the_game(neighbours: int, definition) -> None:
    points, labels, features, own = game(neighbours, 5)
    values = knn_shapley(points, labels, features, candidate_labels_N=own, neighbours=neighbours)
    for e in range(len(points)):
        distances = [float((points[e] - f).square().sum()) for f in features]
        hits = [int(y == labels[e]) for y in own]
        assert values[e].tolist() == pytest.approx(definition(distances, hits, neighbours))


@pytest.mark.parametrize("neighbours", [1, 3, 7])
def test_rows_sum_to_the_utility_of_all_candidates(neighbours: int) -> None:
    points, labels, features, own = game(9, 30)
    values = knn_shapley(points, labels, features, candidate_labels_N=own, neighbours=neighbours)
    for e in range(len(points)):
        distances = [float((points[e] - f).square().sum()) for f in features]
        hits = [int(y == labels[e]) for y in own]
        whole = utility(tuple(range(30)), distances, hits, neighbours)
        assert float(values[e].sum()) == pytest.approx(whole)


def test_no_evaluation_point_gives_no_row() -> None:
    points, labels, features, own = game(1, 5)
    values = knn_shapley(points[:0], labels[:0], features, candidate_labels_N=own, neighbours=3)
    assert values.shape == (0, 5)


def test_a_candidate_alone_is_worth_its_hit() -> None:
    one = torch.zeros(1, 2)
    for label, value in ((0, 1.0), (1, 0.0)):
        values = knn_shapley(
            one,
            torch.tensor([0]),
            one + 1,
            candidate_labels_N=torch.tensor([label]),
            neighbours=1,
        )
        assert values.tolist() == [[value]]


def test_values_of_fewer_candidates_than_neighbours_are_the_shapley_values_too() -> None:
    points, labels, features, own = game(3, 2)
    values = knn_shapley(points, labels, features, candidate_labels_N=own, neighbours=3)
    for e in range(len(points)):
        distances = [float((points[e] - f).square().sum()) for f in features]
        hits = [int(y == labels[e]) for y in own]
        assert values[e].tolist() == pytest.approx(by_subsets(distances, hits, 3))


def test_distances_are_those_of_a_loop_and_never_negative() -> None:
    points, _, features, _ = game(2, 6)
    found = squared_distances(points, features)
    for e, point in enumerate(points):
        for n, feature in enumerate(features):
            assert float(found[e, n]) == pytest.approx(float((point - feature).square().sum()))
    assert (squared_distances(features, features) >= 0).all()
