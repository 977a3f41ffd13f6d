import logging
from pathlib import Path

import pytest

from oclgrid.platform.data import data_lines, telling, undecoded_lines
from oclgrid.search_spaces.sweep import read_sweep
from oclgrid.trainables.datasets import DATASETS
from oclgrid.trainables.outliers import OUTLIERS
from oclgrid.trainables.schema import SpecError

NAMES = [*DATASETS, *OUTLIERS]
EMBEDDED = ("digits", "photos")


def states(root: Path) -> dict[str, tuple[str, str]]:
    first, *lines = data_lines(None, root, download=False)
    assert first == f"data folder: {root}"
    parts = [line.split(maxsplit=2) for line in lines]
    return {name: (state, rest) for name, state, rest in parts}


def test_every_dataset_and_outlier_set_has_a_state_a_place_and_a_remedy(tmp_path: Path) -> None:
    found = states(tmp_path)
    assert list(found) == NAMES
    for name, (state, rest) in found.items():
        if name in EMBEDDED:
            assert (state, rest) == ("complete", "comes with the installation")
        elif name == "miniimagenet":
            assert state == "missing"
            assert rest.startswith("put there mini-imagenet-cache-{train,val,test}.pkl, or ")
        else:
            assert state == "missing"
            assert rest.startswith("looked for ")
            assert rest.endswith(f"; get it with `oclgrid data {name} --download`")
    assert not list(tmp_path.iterdir())


def test_files_that_are_there_but_wrong_are_broken_and_named(tmp_path: Path) -> None:
    for file in (
        "cifar-10-batches-py/data_batch_1",
        "cifar-100-python/train",
        "mini-imagenet-cache-val.pkl",
        "MNIST/raw/t10k-images-idx3-ubyte",
        "omniglot-py/images_evaluation/Angelic/character01/0965_01.png",
        "svhn_test_10000.npz",
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"x")
    found = states(tmp_path)
    assert {n: s for n, (s, _) in found.items() if n not in EMBEDDED} == {
        n: "broken" for n in NAMES if n not in EMBEDDED
    }
    for name, file in (
        ("miniimagenet", "mini-imagenet-cache-train.pkl is missing"),
        ("mnist", "t10k-images-idx3-ubyte"),
        ("omniglot", "images_evaluation has 1 images, expected 13180"),
        ("svhn", "svhn_test_10000.npz"),
    ):
        assert file in found[name][1]


def test_a_damaged_copy_is_broken_and_named(tmp_path: Path) -> None:
    copy = tmp_path / "oclgrid" / "omniglot.arrow"
    copy.parent.mkdir()
    copy.write_bytes(b"ARROW1")
    state, rest = states(tmp_path)["omniglot"]
    assert state == "broken"
    assert f"{copy} is damaged" in rest
    assert "delete it and try again" in rest


def test_a_misspelt_outlier_set_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="unknown dataset 'omniglott'; did you mean 'omniglot'"):
        next(data_lines("omniglott", tmp_path, download=False))


def test_progress_is_told_while_it_is_listened_to() -> None:
    logger, told = logging.getLogger("oclgrid.trainables.anything"), list[str]()
    logger.info("before")
    with telling(told.append):
        logger.info("decoded %d of 7", 3)
        logger.debug("a detail")
    logger.info("after")
    assert told == ["decoded 3 of 7"]


def test_cells_without_a_digest_yet_are_said_to_find_no_results() -> None:
    (line,) = undecoded_lines(read_sweep("table1").cells)
    assert line.startswith("miniimagenet is not decoded")
    assert "`oclgrid data miniimagenet`" in line
    assert not list(undecoded_lines(read_sweep("table1-cifar10").cells))
