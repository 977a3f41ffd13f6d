"""DualNet's two losses (Pham et al., 2021). Shapes: N images, D features, C classes."""

import torch
from torch import Tensor

OFF_DIAGONAL = 2e-3


def barlow_twins(z1_ND: Tensor, z2_ND: Tensor) -> Tensor:
    """Return the Barlow Twins loss: the views' cross-correlation should be the identity."""
    n = len(z1_ND)
    a, b = ((z - z.mean(0)) / z.std(0).clamp(min=1e-12) for z in (z1_ND, z2_ND))
    c_DD = a.T @ b / n
    on = c_DD.diagonal()
    return (on - 1).square().sum() + OFF_DIAGONAL * (c_DD.square().sum() - on.square().sum())


def distillation(z_NC: Tensor, stored_NC: Tensor, valid_N: Tensor, temperature: float) -> Tensor:
    """Return n * mean over (image, class) of t (log t - log s) over the valid images; 0 if none.

    Args:
        z_NC: Logits now.
        stored_NC: Logits as they were; the targets.
        valid_N: Which rows of the targets belong to their image.
        temperature: Divides both.
    """
    log_s = (z_NC / temperature).log_softmax(1)
    log_t = (stored_NC / temperature).log_softmax(1)
    terms_NC = log_t.exp() * (log_t - log_s)
    # n * (sum / (n * C)): the number of valid images cancels out.
    return torch.where(valid_N[:, None], terms_NC, 0).sum() / z_NC.shape[1]
