"""A network as one more step would leave it, without copying or changing the network."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.func import functional_call

Call = Callable[[str, Tensor], Tensor]
"""Takes the name of a part of the network and its input; returns the part's output."""


def after_step(net: nn.ModuleDict, gradients: Sequence[Tensor], rate: float) -> Call:
    """Return the network after ``theta - rate * gradient``.

    Args:
        net: The network. In training mode its BatchNorm statistics stay as they are.
        gradients: One for each parameter, in their order.
        rate: Of the plain SGD step.
    """
    named = zip(net.named_parameters(), gradients, strict=True)
    state = {name: p.detach() - rate * g for (name, p), g in named}
    state |= {name: b.clone() for name, b in net.named_buffers()}

    def call(part: str, x: Tensor) -> Tensor:
        own = {n.removeprefix(f"{part}."): t for n, t in state.items() if n.startswith(f"{part}.")}
        output: Tensor = functional_call(net[part], own, (x,))
        return output

    return call
