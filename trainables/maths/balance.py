"""Extended labels and the weight-aware balanced sampling (WABS) of SDAF.

Shapes: N images or views, C extended classes (rows of the head), D features.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def extended_labels(labels_N: Tensor, rotations: int) -> Tensor:
    """Return the labels of Eq. 4, K * y + k, for every rotation of every image.

    Labels and k count from zero here, from one in the paper.

    Args:
        labels_N: Class of each image, by rank of arrival.
        rotations: K. The result has N * K entries, all rotations of an image in a row.
    """
    if rotations < 1:
        raise ValueError(f"rotations must be at least 1, got {rotations}")
    k_K = torch.arange(rotations, dtype=labels_N.dtype, device=labels_N.device)
    return (rotations * labels_N[:, None] + k_K).flatten()


def keep_rate(weight_CD: Tensor, old_classes: int, temperature: float) -> Tensor:
    """Return gamma of Eq. 9: the share of new-class views to keep.

    Args:
        weight_CD: Softmax weights; the first ``old_classes`` rows are old.
        old_classes: K * C_old. Zero in the first stage, when nothing is old
            and the rate is one. The paper leaves that case open.
        temperature: tau_w. Small values react sharply to a weight gap.
    """
    if not 0 <= old_classes < len(weight_CD):
        raise ValueError(f"old_classes must lie in [0, {len(weight_CD)}), got {old_classes}")
    if old_classes == 0:
        return weight_CD.new_ones(())
    # Reading: the mean weight is the signed mean of the raw entries, without the bias; it could
    # also be the mean of the row norms.
    w_old = weight_CD[:old_classes].mean()
    w_new = weight_CD[old_classes:].mean()
    # 2 e^a / (e^a + e^b) equals 2 sigmoid(a - b), which cannot overflow.
    return (2 * torch.sigmoid((w_old - w_new) / temperature)).clamp(max=1)


def kept_views(
    labels_N: Tensor, old_classes: int, rate: Tensor, *, generator: torch.Generator
) -> Tensor:
    """Return the indicator of Eq. 11 as a mask: which views enter the cross-entropy.

    Args:
        labels_N: Extended label of each view.
        old_classes: K * C_old; labels below it are old and always kept.
        rate: gamma, a 0-dim tensor. It is never read back to the host.
        generator: A CPU generator, so that every device keeps the same views. It advances
            by N draws whatever the labels and the rate.
    """
    # Reading: each view of a new class has its own draw, as the prose has it; the draw could
    # also be shared by the two views of a rotation, or by all views of an image.
    uniform_N = torch.rand(len(labels_N), dtype=torch.float32, generator=generator)
    # A blocking copy would wait for the device; pageable memory is staged before the call returns.
    uniform_N = uniform_N.to(labels_N.device, non_blocking=True)
    return (labels_N < old_classes) | (uniform_N < rate)


def balanced_cross_entropy(
    logits_NC: Tensor, labels_N: Tensor, kept_N: Tensor, *, per: Literal["kept", "all"] = "kept"
) -> Tensor:
    """Return the WABS loss of Eq. 10; zero, with a graph, when no view is kept.

    Args:
        logits_NC: Scores over the extended classes seen so far.
        labels_N: Extended label of each view.
        kept_N: Mask of Eq. 11.
        per: What the sum is divided by: the kept views or all views.
    """
    if per not in ("kept", "all"):
        raise ValueError(f"per must be 'kept' or 'all', got {per!r}")
    loss_N = cross_entropy(logits_NC, labels_N, reduction="none")
    # Weights, not loss_N[kept_N]: an index by mask waits for the device to learn its length.
    weight_N = kept_N.to(loss_N.dtype)
    # Reading: Eq. 10 prints a sum, its prose speaks of an average over sampled views. We divide
    # by the kept views; "all" is the other reading, a mean over the views before sampling.
    total = (weight_N * loss_N).sum()
    if per == "all":
        return total / max(1, len(loss_N))
    return total / weight_N.sum().clamp(min=1)
