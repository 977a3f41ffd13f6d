from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from oclgrid.search_spaces.sweep import on_data, read_sweep
from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.decoded import UNDECODED, cache_path


@pytest.mark.parametrize(
    ("dataset", "memories"),
    [
        ("cifar10", {200, 500, 1000}),
        ("cifar100", {1000, 2000, 5000}),
        ("miniimagenet", {1000, 2000, 5000}),
    ],
)
def test_the_columns_of_a_dataset_are_31_cells_in_3_class_orders(
    dataset: str, memories: set[int]
) -> None:
    cells = read_sweep(f"table1-{dataset}").cells
    assert len(cells) == 31 * 3
    assert {c.dataset for c in cells} == {dataset}
    for method in {c.method.name for c in cells}:
        asked = {c.memory_size for c in cells if c.method.name == method}
        assert asked == ({0} if method == "ewc" else memories)


def test_table_1_has_279_cells_those_of_its_three_datasets() -> None:
    whole = {c.cell_id for c in read_sweep("table1").cells}
    parts = ("cifar10", "cifar100", "miniimagenet")
    assert whole == {c.cell_id for p in parts for c in read_sweep(f"table1-{p}").cells}
    assert len(whole) == 279


def test_methods_have_their_mini_imagenet_defaults_in_table_1() -> None:
    methods = {c.method.name: c.method for c in read_sweep("table1-miniimagenet").cells}
    assert asdict(methods["aser"])["samples_per_class"] == 3
    assert asdict(methods["dvc"])["distance_weight"] == 4.0
    assert {m.feature_pool for m in methods.values()} == {"global"}


def test_cells_on_data_without_a_published_digest_wait_for_it(tmp_path: Path) -> None:
    sweep = read_sweep("table1")
    before = {c.dataset: c.data_digest for c in sweep.cells}
    assert before["miniimagenet"] == UNDECODED
    assert on_data(sweep, tmp_path) == sweep
    cache = cache_path(DATASETS["miniimagenet"], tmp_path)
    cache.parent.mkdir()
    schema = pa.schema([("image", pa.binary(84 * 84 * 3)), ("label", pa.int64())])
    with pa.ipc.new_file(str(cache), schema.with_metadata({"digest": "d" * 64})):
        pass
    after = {c.dataset: c.data_digest for c in on_data(sweep, tmp_path).cells}
    assert after == {**before, "miniimagenet": "d" * 64}
