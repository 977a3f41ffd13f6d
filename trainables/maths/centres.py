"""Nearest-class-mean prediction: centres, whitening and distances as matrix products.

The Mahalanobis distance is the Euclidean one between features multiplied by ``whitening``.

Shapes: N images or rows, C classes, K rotations, D features, R retained directions.
"""

import torch
from torch import Tensor


def class_centres(features_NKD: Tensor, labels_N: Tensor, classes: int) -> Tensor:
    """Return centres_CKD of Eq. 13: the mean feature per class and rotation.

    A class without an image has a centre at infinity.
    """
    if bool(((labels_N < 0) | (labels_N >= classes)).any()):
        low, high = int(labels_N.min()), int(labels_N.max())
        raise ValueError(f"labels_N must lie in [0, {classes}), got {low} to {high}")
    classes_C = torch.arange(classes, device=labels_N.device)
    # A product with the membership matrix adds in a fixed order, unlike index_add on a GPU.
    member_CN = (classes_C[:, None] == labels_N).to(features_NKD.dtype)
    count_C11 = member_CN.sum(dim=1)[:, None, None]
    sum_CKD = torch.einsum("cn,nkd->ckd", member_CN, features_NKD)
    # Reading: the paper leaves open a class without an exemplar. It is unreachable here; the
    # reference code of SCR gives it a random centre.
    return torch.where(count_C11 > 0, sum_CKD / count_C11.clamp(min=1), torch.inf)


def whitening(features_ND: Tensor, cutoff: float) -> Tensor:
    """Return A_DR in float64, with A A^T the pseudo-inverse of the covariance in Eq. 14.

    Args:
        features_ND: Features of all classes and rotations together, one per row.
        cutoff: Eigenvalues up to ``cutoff`` times the largest are dropped. R counts the rest,
            and is zero when all rows are equal.
    """
    rows = len(features_ND)
    if rows < 2:
        raise ValueError(f"features_ND must have at least 2 rows, got {rows}")
    if not 0 <= cutoff < 1:
        raise ValueError(f"cutoff must lie in [0, 1), got {cutoff}")
    centred_ND = features_ND.double()
    # Equal rows become exact zeros, which a rounded mean alone does not promise.
    centred_ND = centred_ND - centred_ND[0]
    centred_ND = centred_ND - centred_ND.mean(dim=0)
    # Reading: the covariance is that of the pooled features, spread between the classes
    # included, as R pools them all; Mahalanobis distances often use the spread within classes.
    # The divisor, n or n - 1, does not move the arg-min of Eq. 14.
    covariance_DD = centred_ND.T @ centred_ND / (rows - 1)
    value_D, vector_DD = torch.linalg.eigh(covariance_DD)
    # Reading: the paper does not say where its pseudo-inverse cuts. Library defaults range from
    # 1e-15 to n times machine epsilon, relative to the largest eigenvalue; here the caller says.
    is_kept_D = value_D > cutoff * value_D[-1].clamp(min=0)
    a_DR: Tensor = vector_DD[:, is_kept_D] / value_D[is_kept_D].sqrt()
    return a_DR


def mean_distance(features_NKD: Tensor, centres_CKD: Tensor) -> Tensor:
    """Return distances_NC of Eq. 14: Euclidean distance, averaged over the K rotations.

    A centre with an entry that is not finite is infinitely far. Infinite centres turn into NaN
    when they are normalised or whitened, so NaN counts too.
    """
    is_reachable_C = centres_CKD.isfinite().flatten(1).all(dim=1)
    centres_CKD = torch.where(is_reachable_C[:, None, None], centres_CKD, 0)
    # Distances ignore a common shift; without one, large norms would cancel digits below.
    shift_KD = centres_CKD.sum(dim=0) / is_reachable_C.sum().clamp(min=1)
    features_NKD = features_NKD - shift_KD
    centres_CKD = centres_CKD - shift_KD

    # |f - m|^2 = |f|^2 + |m|^2 - 2 f.m needs no tensor of N x C x D.
    product_NCK = torch.einsum("nkd,ckd->nck", features_NKD, centres_CKD)
    norms_NCK = features_NKD.square().sum(dim=2)[:, None] + centres_CKD.square().sum(dim=2)
    # Rounding can leave a small negative square. The root stays inside the mean over k.
    distances_NC = (norms_NCK - 2 * product_NCK).clamp(min=0).sqrt().mean(dim=2)
    return distances_NC.masked_fill(~is_reachable_C, torch.inf)
