import pytest
import torch
import torch.nn.functional as F
from torch import nn

from oclgrid.trainables.maths.information import (
    last_layer_gradient,
    mutual_information,
    prediction_distance,
    view_cross_entropy,
)

Z = torch.tensor([[1.0, 0, -1], [0, 2, 0]])
Z_VIEW = torch.tensor([[0.5, 0.5, 0], [0, 1, 1]])
Q = torch.tensor([[2.0, 0, 0], [0, 0, 1]])
LABELS = torch.tensor([0, 1])


def test_cross_entropy_of_the_stated_case() -> None:
    assert float(view_cross_entropy(Z, Z_VIEW, LABELS)) == pytest.approx(0.616791, abs=1e-6)


def test_mutual_information_of_the_stated_case() -> None:
    assert float(mutual_information(Z, Z_VIEW, Q)) == pytest.approx(-1.009431, abs=1e-6)


def test_distance_of_the_stated_case() -> None:
    assert float(prediction_distance(Z, Z_VIEW, Q)) == pytest.approx(0.221163, abs=1e-6)


def test_errors_of_the_stated_case() -> None:
    found = last_layer_gradient(Z, torch.ones(2, 1), LABELS)
    assert found.tolist() == pytest.approx([0.669518, 0.426028], abs=1e-6)


def test_mutual_information_is_least_where_predictions_spread_over_all_classes() -> None:
    spread = 50 * torch.eye(3)
    assert float(mutual_information(spread, spread, spread)) == pytest.approx(
        -torch.log(torch.tensor(3.0)).item()
    )


def test_a_class_that_is_never_predicted_gives_a_finite_gradient() -> None:
    z = torch.tensor([[1000.0, 0, 0]], requires_grad=True)
    loss = mutual_information(z, z, z)
    (gradient,) = torch.autograd.grad(loss, z)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    assert gradient.isfinite().all()


def test_views_that_agree_with_the_joint_prediction_have_no_distance() -> None:
    assert float(prediction_distance(Z, Z, Z)) == 0


def test_no_gradient_is_stopped_in_the_distance() -> None:
    parts = [t.clone().requires_grad_() for t in (Z, Z_VIEW, Q)]
    gradients = torch.autograd.grad(prediction_distance(*parts), parts)
    assert all(g.abs().sum() > 0 for g in gradients)


def test_size_is_the_l1_norm_of_what_autograd_gives_the_layer() -> None:
    torch_rng = torch.Generator().manual_seed(0)
    layer = nn.Linear(5, 3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch_rng))
    features = torch.randn(4, 5, generator=torch_rng)
    labels = torch.tensor([0, 2, 1, 2])
    found = last_layer_gradient(layer(features).detach(), features, labels)
    for i in range(4):
        loss = F.cross_entropy(layer(features[i : i + 1]), labels[i : i + 1])
        (gradient,) = torch.autograd.grad(loss, layer.weight)
        assert float(found[i]) == pytest.approx(float(gradient.abs().sum()), rel=1e-5)
