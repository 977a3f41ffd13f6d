"""Accuracy, forgetting and balancedness of one finished cell.

Shapes: T stages, C classes in order of arrival. Row t of ``accuracy_TC`` holds the accuracies
after stage t, in [0, 1]; a class not seen yet is NaN.
"""

import torch
from torch import Tensor


def average_accuracy(accuracy_TC: Tensor) -> float:
    """Return A of Sec. A.2: the mean over stages of the mean over the classes seen."""
    _seen(accuracy_TC)
    return float(accuracy_TC.nanmean(dim=1).mean())


def end_accuracy(accuracy_TC: Tensor) -> float:
    """Return E of Sec. A.2: the mean over the classes seen after the last stage."""
    _seen(accuracy_TC)
    return float(accuracy_TC[-1].nanmean())


def forgetting(accuracy_TC: Tensor) -> float:
    """Return F of Eq. 15 and 16, and 0 after a single stage, when nothing is old.

    Negative when old classes end better than they ever were.
    """
    is_seen_TC = _seen(accuracy_TC)
    if len(accuracy_TC) == 1:
        return 0.0
    # Reading: Eq. 16 averages over every stage from the second on, and over the classes old in
    # that stage; the reference code measures forgetting once, at the end, and per stage.
    best_TC = torch.where(is_seen_TC, accuracy_TC, -torch.inf).cummax(dim=0).values
    lost_TC = torch.where(is_seen_TC[:-1], best_TC[:-1] - accuracy_TC[1:], torch.nan)  # Eq. 15
    return float(lost_TC.nanmean(dim=1).mean())


def balance(accuracy_C: Tensor) -> float:
    """Return beta of Eq. 18, which is 1 exactly when all accuracies are equal."""
    if accuracy_C.ndim != 1 or len(accuracy_C) == 0:
        raise ValueError(f"accuracy_C must be a non-empty vector, got {tuple(accuracy_C.shape)}")
    gap_CC = accuracy_C[:, None] - accuracy_C
    # Reading: the mean runs over all ordered pairs, a class with itself included; it could also
    # run over pairs of distinct classes.
    return float(torch.exp(-gap_CC.square() / 0.5).mean())


def _seen(accuracy_TC: Tensor) -> Tensor:
    """Return which classes are seen after each stage; refuse rows that are not a staircase."""
    if accuracy_TC.ndim != 2 or accuracy_TC.numel() == 0:
        raise ValueError(
            f"accuracy_TC must be a non-empty matrix, got shape {tuple(accuracy_TC.shape)}"
        )
    is_seen_TC = ~accuracy_TC.isnan()
    seen_T = is_seen_TC.sum(dim=1)
    is_first_TC = torch.arange(accuracy_TC.shape[1], device=seen_T.device) < seen_T[:, None]
    if not torch.equal(is_seen_TC, is_first_TC):
        raise ValueError("accuracy_TC must list classes by arrival, but a NaN precedes a number")
    if bool(seen_T[0] == 0) or bool((seen_T.diff() < 0).any()):
        raise ValueError(
            f"classes seen must start above 0 and never decrease, got {seen_T.tolist()}"
        )
    return is_seen_TC
