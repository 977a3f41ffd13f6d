"""One contract for every store: embedded, behind a server of several workers, in PostgreSQL."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from oclgrid.platform.claims import Driver
from oclgrid.platform.server import EmbeddedServer
from oclgrid.platform.store import Store
from oclgrid.search_spaces.sweep import Sweep, parse_sweep
from oclgrid.trainables.cell import ElsewhereError

pytestmark = pytest.mark.slow

AT = 1_700_000_000_000
DRIVERS = 6
WRITERS, STAGES = 64, 5
NUMBERS = ("E", "A", "F", "beta", "stage", "train_seconds", "inference_seconds")


class SeveralWorkers(EmbeddedServer):
    """A tracking server as one would start it for others: more than one process answers."""

    workers = 2


@pytest.fixture(scope="session")
def remote_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with SeveralWorkers(tmp_path_factory.mktemp("remote")) as server:
        server.wait()
        yield server.uri


@pytest.fixture(scope="session", params=["server_uri", "remote_uri", "postgresql_uri"])
def uri(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def store(uri: str) -> Store:
    return Store(uri)


def sweep(name: str, memory: int) -> Sweep:
    cells = {"dataset": "digits", "memory": memory, "orders": 3, "method": ["er", "sdaf"]}
    return parse_sweep({"sweep": name, "cells": cells}, where="test")


def test_a_cell_is_found_by_what_it_is_and_only_that(store: Store) -> None:
    made = sweep("contract", 11)
    parent = store.find_or_create("contract", kind="sweep", sweep="contract")
    runs = [store.create_cell(c, parent=parent, tags={"commit": "c"}) for c in made.cells[:2]]
    store.set_status(runs[0], "FINISHED")
    found = store.cells(made.cells)
    assert {c: r.run_id for c, r in found.items()} == {
        c.cell_id: r for c, r in zip(made.cells[:2], runs, strict=True)
    }
    assert [r.is_finished for r in found.values()] == [True, False]
    assert store.cells(sweep("contract", 12).cells) == {}


def test_what_is_written_twice_is_there_once(store: Store) -> None:
    run_id = store.create("twice", {"kind": "test"})
    for _ in range(2):
        for stage in (1, 2):
            store.log_numbers(run_id, {"E": stage / 10}, step=stage, at=AT + stage)
        store.set_tags(run_id, {"some": "tag"})
    assert store.stage_accuracies([run_id]) == {run_id: [0.1, 0.2]}
    first = store.find_or_create("again", kind="sweep", sweep="again")
    assert store.find_or_create("again", kind="sweep", sweep="again") == first


def test_files_come_back_as_they_went(store: Store, tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "a file.pt").write_bytes(content)
    run_id = store.create("files", {"kind": "test"})
    store.client.log_artifacts(run_id, str(tmp_path))
    assert store.artifact(run_id, "checkpoints/a file.pt") == content
    assert store.artifact(run_id, "checkpoints/none.pt") is None


def test_a_deleted_run_is_not_found_and_takes_no_tags(store: Store) -> None:
    run_id = store.create("deleted", {"kind": "test", "one": "of these"})
    assert list(store.tagged(one="of these")) == [run_id]
    store.delete(run_id)
    assert store.tagged(one="of these") == {}
    assert store.active_tags(run_id) is None
    with pytest.raises(MlflowException, match="active"):
        store.set_tags(run_id, {"some": "tag"})


@pytest.fixture
def at_once(uri: str) -> Iterator[Callable[[Callable[[Driver], object]], list[object]]]:
    """Call something for several drivers at the same time."""
    with ExitStack() as stack, ThreadPoolExecutor(DRIVERS) as pool:
        drivers = [Driver(Store(uri), beat_seconds=1e9) for _ in range(DRIVERS)]
        for driver in drivers:
            stack.enter_context(driver)
        yield lambda call: list(pool.map(call, drivers))


def test_of_many_that_claim_at_once_exactly_one_holds(
    uri: str, at_once: Callable[[Callable[[Driver], object]], list[object]]
) -> None:
    def holds(driver: Driver) -> bool:
        try:
            driver.claimant.claim(Store(uri), keys[0])
        except ElsewhereError:
            return False
        return True

    keys = ["one", "two", "three"]
    while keys:
        assert sum(map(bool, at_once(holds))) == 1
        keys.pop(0)


def test_a_run_that_many_create_is_created_once(
    uri: str, at_once: Callable[[Callable[[Driver], object]], list[object]]
) -> None:
    def create(driver: Driver) -> str:
        with driver.alone():
            return Store(uri).find_or_create("one", kind="sweep", sweep="claimed")

    assert len(set(at_once(create))) == 1


def test_64_writers_at_once_lose_nothing(uri: str) -> None:
    def write(writer: int) -> str:
        store = Store(uri)
        run_id = store.create(f"writer {writer}", {"kind": "test"})
        for stage in range(1, STAGES + 1):
            numbers = dict.fromkeys(NUMBERS, writer + stage / 10)
            store.log_numbers(run_id, numbers, step=stage, at=AT + stage)
            store.set_tags(run_id, {f"stage.{stage}": str(writer)})
        store.set_status(run_id, "FINISHED")
        return run_id

    with ThreadPoolExecutor(WRITERS) as pool:
        runs = list(pool.map(write, range(WRITERS)))
    store = Store(uri)
    for writer, run_id in enumerate(runs):
        run = store.client.get_run(run_id)
        assert run.info.status == "FINISHED"
        expected = {f"stage.{s}": str(writer) for s in range(1, STAGES + 1)}
        assert expected.items() <= run.data.tags.items()
        for name in NUMBERS:
            points = [(m.step, m.value) for m in store.client.get_metric_history(run_id, name)]
            assert sorted(points) == [(s, writer + s / 10) for s in range(1, STAGES + 1)]
