"""How the variance of features spreads over directions.

Shapes: N images, D features, E eigenvalues.
"""

import torch
from torch import Tensor


def scree(features_ND: Tensor, count: int) -> Tensor:
    """Return the largest eigenvalues_E, descending, of the covariance of scaled features.

    Features are divided by the largest norm among them, so that spectra of different networks
    compare; where all are zero they are left as they are. The divisor is n - 1.
    """
    if len(features_ND) < 2:
        raise ValueError(f"features_ND must have at least 2 rows, got {len(features_ND)}")
    features_ND = features_ND.double()
    largest = features_ND.norm(dim=1).max()
    covariance_DD = torch.cov(features_ND.T / torch.where(largest > 0, largest, 1))
    value_D: Tensor = torch.linalg.eigvalsh(torch.atleast_2d(covariance_DD))
    # A covariance has no negative eigenvalue; rounding can leave one.
    return value_D.clamp(min=0).flip(0)[:count]


def participation(value_E: Tensor) -> float:
    """Return (sum of eigenvalues)^2 / (sum of squares): how many directions carry the variance.

    One when a single direction has it all, E when all have equal shares; NaN without variance.
    """
    return float(value_E.sum().square() / value_E.square().sum())
