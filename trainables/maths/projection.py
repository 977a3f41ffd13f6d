"""The gradient projection of A-GEM (its Eq. 11). Shapes: P parameters."""

import torch
from torch import Tensor


def projected(gradient_P: Tensor, reference_P: Tensor) -> Tensor:
    """Return the gradient without its part against the reference gradient.

    Unchanged where the two agree (inner product not negative); otherwise the nearest
    gradient that is orthogonal to the reference. No branch, so no wait for the device.
    """
    inner = gradient_P @ reference_P
    against = inner.clamp(max=0) / (reference_P @ reference_P).clamp(min=1e-38)
    return gradient_P - torch.where(inner < 0, against, 0) * reference_P
