"""DVC's loss between two views (Gu et al., 2022). Shapes: N images, C classes."""

import torch
import torch.nn.functional as F
from torch import Tensor

FLOOR = 2.2e-16
"""Of a batch's mean probability, so that its logarithm is finite."""


def view_cross_entropy(z_NC: Tensor, z_view_NC: Tensor, labels_N: Tensor) -> Tensor:
    """Return L_ce: the mean cross-entropy over both views."""
    return F.cross_entropy(torch.cat([z_NC, z_view_NC]), labels_N.repeat(2))


def mutual_information(z_NC: Tensor, z_view_NC: Tensor, q_NC: Tensor) -> Tensor:
    """Return L_mi: minus the mean entropy of the three batch-average predictions."""
    means = [z.softmax(1).mean(0).clamp(min=FLOOR) for z in (z_NC, z_view_NC, q_NC)]
    return torch.stack([(p * p.log()).sum() for p in means]).mean()


def prediction_distance(z_NC: Tensor, z_view_NC: Tensor, q_NC: Tensor) -> Tensor:
    """Return L_dl: the mean absolute difference of the joint from each single prediction."""
    joint = q_NC.softmax(1)
    single = torch.cat([z_NC.softmax(1), z_view_NC.softmax(1)])
    return (torch.cat([joint, joint]) - single).abs().mean()


def last_layer_gradient(z_NC: Tensor, features_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Return the L1 norm of each image's cross-entropy gradient by the last layer's weights.

    That gradient is the outer product of (softmax - one-hot) and the features.
    """
    error = z_NC.softmax(1) - F.one_hot(labels_N, z_NC.shape[1])
    return error.abs().sum(1) * features_ND.abs().sum(1)
