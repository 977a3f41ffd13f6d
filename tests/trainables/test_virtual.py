import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from oclgrid.trainables.network import Backbone, mlp
from oclgrid.trainables.virtual import after_step

IMAGES = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
RATE = 0.1


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def net() -> nn.ModuleDict:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = {"backbone": Backbone(), "joint": mlp(160, 8, 5, norm=True)}
        return nn.ModuleDict(parts).to(memory_format=torch.channels_last)


def output(net: nn.ModuleDict) -> Tensor:
    found: Tensor = net["joint"](net["backbone"](IMAGES))
    return found


def gradients(net: nn.ModuleDict) -> list[Tensor]:
    return list(torch.autograd.grad(output(net).square().mean(), list(net.parameters())))


def stepped(net: nn.ModuleDict, given: list[Tensor]) -> nn.ModuleDict:
    """A copy that took a step of SGD."""
    twin = copy.deepcopy(net)
    for parameter, gradient in zip(twin.parameters(), given, strict=True):
        parameter.grad = gradient
    torch.optim.SGD(twin.parameters(), lr=RATE).step()
    return twin


@pytest.mark.parametrize("is_training", [True, False])
def test_outputs_are_those_of_a_copy_that_took_the_step(
    net: nn.ModuleDict, is_training: bool
) -> None:
    given = gradients(net)
    net.train(is_training)
    twin, call = stepped(net, given), after_step(net, given, RATE)
    with torch.no_grad():
        found, before = call("joint", call("backbone", IMAGES)), output(copy.deepcopy(net))
        assert torch.allclose(found, output(twin), atol=1e-6)
        assert not torch.allclose(found, before, atol=1e-3)


def test_the_live_network_keeps_parameters_and_batchnorm_statistics(net: nn.ModuleDict) -> None:
    given = gradients(net)
    before = copy.deepcopy(net.state_dict())
    call = after_step(net, given, RATE)
    with torch.no_grad():
        call("joint", call("backbone", IMAGES))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert net.training


def test_a_gradient_too_few_is_refused(net: nn.ModuleDict) -> None:
    with pytest.raises(ValueError, match="shorter"):
        after_step(net, gradients(net)[:-1], RATE)
