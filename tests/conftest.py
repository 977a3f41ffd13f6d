"""What tests of several rooms share: one tracking server, one trained cell."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")


@pytest.fixture(scope="session")
def store_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def server_uri(store_folder: Path) -> Iterator[str]:
    from oclgrid.platform.server import EmbeddedServer

    with EmbeddedServer(store_folder) as server:
        server.wait()
        yield server.uri


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Train as a trial does; the number of threads can change the last bits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
