"""The running Fisher information of EWC++ (Chaudhry et al., 2018). Shapes: P parameters."""

from torch import Tensor


def updated_fisher(
    running_P: Tensor, accumulated_P: Tensor, *, alpha: float, period: int
) -> Tensor:
    """Return the moving average after another ``period`` of squared gradients."""
    return (1 - alpha) * running_P + alpha * accumulated_P / period


def normalised_fisher(running_P: Tensor) -> Tensor:
    """Return the Fisher information scaled to [0, 1] over all parameters together."""
    low, high = running_P.min(), running_P.max()
    return (running_P - low) / (high - low + 1e-32)


def penalty(fisher_P: Tensor, shift_P: Tensor, weight: float) -> Tensor:
    """Return weight * sum F (theta - anchor)^2, whose gradient is ``penalty_gradient``."""
    return weight * (fisher_P * shift_P**2).sum()


def penalty_gradient(fisher_P: Tensor, shift_P: Tensor, weight: float) -> Tensor:
    """Return the gradient of ``penalty`` by theta."""
    return 2 * weight * fisher_P * shift_P
