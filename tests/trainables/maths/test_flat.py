import pytest
import torch
from torch import Tensor

from oclgrid.trainables.maths.flat import flat, shaped


def parts(memory_format: torch.memory_format) -> list[Tensor]:
    kernel = torch.arange(48.0).view(2, 3, 2, 4).contiguous(memory_format=memory_format)
    return [kernel, torch.arange(5.0), torch.tensor(7.0)]


FORMATS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("memory_format", FORMATS)
def test_cutting_up_undoes_joining(memory_format: torch.memory_format) -> None:
    given = parts(memory_format)
    found = shaped(flat(given), given)
    assert [t.shape for t in found] == [t.shape for t in given]
    assert all(torch.equal(a, b) for a, b in zip(found, given, strict=True))


@pytest.mark.parametrize("memory_format", FORMATS)
def test_the_order_of_entries_does_not_depend_on_the_memory_format(
    memory_format: torch.memory_format,
) -> None:
    assert flat(parts(memory_format)).tolist() == [*range(48), *range(5), 7]
