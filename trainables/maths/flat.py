"""Tensors of many shapes as one vector, and back. Shapes: P parameters."""

from collections.abc import Sequence

import torch
from torch import Tensor


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return all entries as one vector, whatever their memory format."""
    return torch.cat([t.reshape(-1) for t in tensors])


def shaped(vector_P: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the vector cut up into the shapes of ``like``; the inverse of ``flat``."""
    parts = vector_P.split([t.numel() for t in like])
    return [part.view(t.shape) for part, t in zip(parts, like, strict=True)]
