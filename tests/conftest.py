"""What tests of several rooms share: one tracking server, one trained cell."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from oclgrid.platform.environment import prepare
from tests.postgresql import PostgreSql

prepare()  # as the command does, before any test imports MLflow or Ray


@pytest.fixture(scope="session")
def store_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def server_uri(store_folder: Path) -> Iterator[str]:
    from oclgrid.platform.server import EmbeddedServer

    with EmbeddedServer(store_folder) as server:
        server.wait()
        yield server.uri


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSql]:
    with TemporaryDirectory() as folder, PostgreSql(Path(folder)) as server:
        yield server


@pytest.fixture(scope="session")
def postgresql_uri(
    postgresql: PostgreSql, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Address of a tracking server over PostgreSQL."""
    from oclgrid.platform.server import EmbeddedServer

    folder = tmp_path_factory.mktemp("artifacts")
    with EmbeddedServer(folder, database=postgresql.uri) as server:
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
