"""Tests of methods train with one thread, and import what they share from `slow_twins`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parent))  # pytest's importlib mode leaves it to us
pytest.register_assert_rewrite("slow_twins")


@pytest.fixture(scope="module", autouse=True)
def _one_thread(one_thread: None) -> None:
    """Train as a trial does, in every module here."""


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Compute so that a twin that sums in another order ends equal on any processor."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
