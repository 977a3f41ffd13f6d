"""KNN Shapley values (Jia et al., 2019) as ASER uses them.

Shapes: E evaluation points, N candidates, D features.
"""

import torch
from torch import Tensor


def knn_shapley(
    evaluation_ED: Tensor,
    evaluation_labels_E: Tensor,
    candidates_ND: Tensor,
    *,
    candidate_labels_N: Tensor,
    neighbours: int,
) -> Tensor:
    """Return E x N values: what each candidate adds to classifying each evaluation point by KNN.

    With candidates sorted by distance and hit_m = 1 where the m-th nearest has the point's
    label: s_N = hit_N / N * min(k, N) / k and
    s_m = s_{m+1} + (hit_m - hit_{m+1}) / k * min(k, m) / m. The
    recursion is a sum from the far end, so one reversed cumulative sum does it. A row sums to
    the KNN utility of all candidates: hits among the k nearest, divided by k.
    """
    n = len(candidates_ND)
    distances_EN = squared_distances(evaluation_ED, candidates_ND)
    order_EN = distances_EN.argsort(dim=1, stable=True)
    hits_EN = (candidate_labels_N[order_EN] == evaluation_labels_E[:, None]).double()
    m = torch.arange(1, n, dtype=torch.float64, device=hits_EN.device)
    weights = m.clamp(max=neighbours) / (m * neighbours)
    last = hits_EN[:, -1:] * min(neighbours, n) / (neighbours * n)
    gains = torch.cat([(hits_EN[:, :-1] - hits_EN[:, 1:]) * weights, last], dim=1)
    sorted_EN = gains.flip(1).cumsum(1).flip(1)
    return torch.empty_like(sorted_EN).scatter_(1, order_EN, sorted_EN)


def squared_distances(a_ED: Tensor, b_ND: Tensor) -> Tensor:
    """Return squared Euclidean distances between all rows, by a matrix product."""
    a, b = a_ED.double(), b_ND.double()
    products_EN = a @ b.T
    squares = a.square().sum(1, keepdim=True) + b.square().sum(1)
    return (squares - 2 * products_EN).clamp_(min=0)
