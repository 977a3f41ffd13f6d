"""Contrastive and self-supervised losses on projected views.

Shapes: N images (or rows), V views of an image, P projected features, B = N * V vectors.
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize


def supcon(z_NVP: Tensor, labels_N: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss (Khosla et al., 2020) of SCR and SCL.

    Unnumbered in the paper; Eq. 2 and 3 only name the views that enter.

    Args:
        z_NVP: L2-normalised projections. With two views or more every anchor has a
            positive, so that no mean over an empty set can arise.
        labels_N: One label per image, shared by its views.
        temperature: Divides the inner products. SCR uses 0.1.
    """
    images, views, _ = z_NVP.shape
    if images < 1 or views < 2:
        raise ValueError(
            f"z_NVP must hold at least 1 image and 2 views, got {images} images and {views} views"
        )
    z_BP = z_NVP.flatten(0, 1)
    labels_B = labels_N.repeat_interleave(views)
    is_self_BB = torch.eye(images * views, dtype=torch.bool, device=z_NVP.device)
    is_positive_BB = (labels_B[:, None] == labels_B) & ~is_self_BB

    # An anchor is absent from its own denominator; log_softmax cannot overflow.
    logits_BB = (z_BP @ z_BP.T / temperature).masked_fill(is_self_BB, -torch.inf)
    log_share_BB = logits_BB.log_softmax(dim=1)
    # Reading: the mean over positives is taken of the logarithms, not inside the logarithm,
    # and no base temperature scales the result, as SCR has it; the original code scales by
    # temperature / base temperature.
    # where, not a product: the diagonal holds -inf, and 0 * -inf is NaN.
    positive_sum_B = torch.where(is_positive_BB, log_share_BB, 0).sum(dim=1)
    return -(positive_sum_B / is_positive_BB.sum(dim=1)).mean()


def negative_cosine(p_NP: Tensor, z_NP: Tensor) -> Tensor:
    """Return the self-supervised loss of Eq. 6 and 7, which lies in [-1, 1].

    Args:
        p_NP: Predictions, one row per view.
        z_NP: Projection of the other view in the same row. No gradient reaches it.
    """
    # Reading: Eq. 7 prints a sum over the views, its prose speaks of an average. We take the
    # mean over all views; a sum, over all or over the two views of a pair, only scales it.
    return -cosine_similarity(p_NP, z_NP.detach(), dim=1).mean()


def direction_spread(z_NP: Tensor) -> Tensor:
    """Return how far the rows point apart: near 1 for random directions, 0 if all are parallel.

    It is the root of 1 - |m|^2, m the mean of the rows at unit length, which is their total
    variance. Chen and He (2021) watch it, as Eq. 7 is at its least where all rows are parallel.
    """
    mean_P = normalize(z_NP, dim=1).mean(dim=0)
    return (1 - mean_P.square().sum()).clamp(min=0).sqrt()


def mean_negative_cosine(p_NVP: Tensor, z_NVP: Tensor) -> Tensor:
    """Return Eq. 7 with all views of an image as positives: mean of -cos(p_a, z_b), a != b."""
    p, z = normalize(p_NVP, dim=2), normalize(z_NVP.detach(), dim=2)
    cosines_NVV = p @ z.mT
    views = cosines_NVV.shape[1]
    own = cosines_NVV.diagonal(dim1=1, dim2=2).sum()
    return (own - cosines_NVV.sum()) / (len(p) * views * (views - 1))
