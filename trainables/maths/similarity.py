"""How alike representations, or gradients, are.

Shapes: N images, D and E features of two representations; T pairs of stages, S stages of data;
for gradients S subsets, P parameters.
"""

import torch
from torch import Tensor


def linear_cka(r1_ND: Tensor, r2_NE: Tensor) -> float:
    """Return the linear CKA of Eq. 17, in [0, 1], blind to rotation, shift and scale.

    NaN when a representation is the same for all images: the ratio is then 0 / 0.
    """
    if len(r1_ND) != len(r2_NE):
        raise ValueError(f"both must describe the same images, got {len(r1_ND)} and {len(r2_NE)}")
    r1_ND, r2_NE = _centred(r1_ND), _centred(r2_NE)
    shared = torch.linalg.matrix_norm(r1_ND.T @ r2_NE).square()
    own = torch.linalg.matrix_norm(r1_ND.T @ r1_ND) * torch.linalg.matrix_norm(r2_NE.T @ r2_NE)
    return float(shared / own)


def seen_and_unseen(cka_TS: Tensor) -> tuple[float, float]:
    """Return the mean CKA over data of stages seen by the earlier backbone, and over the others.

    Args:
        cka_TS: Row t compares the backbones after stages t and t + 1, column s is the data of
            stage s, both counted from the first stage. Seen means s <= t.
    """
    rows, columns = cka_TS.shape
    is_seen_TS = torch.ones(rows, columns, dtype=torch.bool).tril()
    return float(cka_TS[is_seen_TS].mean()), float(cka_TS[~is_seen_TS].mean())


def _centred(r_ND: Tensor) -> Tensor:
    """Return float64 features whose columns have mean zero; equal rows become exact zeros."""
    r_ND = r_ND.double()
    r_ND = r_ND - r_ND[:1]
    return r_ND - r_ND.mean(dim=0)


def largest_cosine(v_NP: Tensor, g_SP: Tensor) -> Tensor:
    """Return max over s of cos(v_n, g_s), as GSS scores a gradient against those of the memory."""
    norms_NS = v_NP.norm(dim=1)[:, None] * g_SP.norm(dim=1)
    cosines_NS: Tensor = (v_NP @ g_SP.T) / norms_NS.clamp(min=1e-8)
    return cosines_NS.amax(dim=1)
