import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oclgrid.trainables.array_pickle import load_arrays
from oclgrid.trainables.sources import BrokenDataError

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 3, 3, 3), dtype=np.uint8)
CONTENT = {"image_data": IMAGES, "class_dict": {"n00000001": [0, 1], "n00000002": [2, 3]}}


class Calls:
    """Pickles as a call of any function, as an attacker's file would."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.call


def written(tmp_path: Path, content: object, protocol: int = 4) -> Path:
    file = tmp_path / "file.pkl"
    file.write_bytes(pickle.dumps(content, protocol=protocol))
    return file


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back_as_they_were_written(tmp_path: Path, protocol: int, order: Any) -> None:
    content = {**CONTENT, "image_data": np.asarray(IMAGES, order=order)}
    loaded = load_arrays(written(tmp_path, content, protocol))
    np.testing.assert_array_equal(loaded["image_data"], IMAGES)
    assert loaded["image_data"].dtype == np.uint8
    assert loaded["class_dict"] == CONTENT["class_dict"]


def test_arrays_of_older_numpy_and_python_2_come_back(tmp_path: Path) -> None:
    file = tmp_path / "file.pkl"
    # Protocol 2 with byte strings (U), as Python 2 writes them.
    file.write_bytes(
        b"\x80\x02}U\x0aimage_datacnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x02\x07\xfetbs."
    )
    assert load_arrays(file)["image_data"].tolist() == [7, 254]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_harmful_pickle_is_refused_and_does_nothing(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "harm"
    harm: list[Calls] = [
        Calls(os.system, f"touch {marker}"),
        Calls(exec, f"open({str(marker)!r}, 'w')"),
        Calls(eval, f"open({str(marker)!r}, 'w')"),
        Calls(np.save, str(marker), 0),
        Calls(Path.touch, marker),
    ]
    for call in harm:
        file = written(tmp_path, {**CONTENT, "x": call}, protocol)
        with pytest.raises(BrokenDataError, match=r"file.pkl is refused: it asks for \w+\.\w+"):
            load_arrays(file)
    assert not list(tmp_path.glob("harm*"))


@pytest.mark.parametrize(
    "content",
    [
        [IMAGES],
        {"image_data": IMAGES.astype(np.int64)},
        {"image_data": np.array([{}, None])},
        {"image_data": np.float64(1)},
        {"image_data": {1, 2}},
        {"image_data": Path("x")},
    ],
    ids=["list", "int64", "objects", "scalar", "set", "path"],
)
def test_what_is_no_dictionary_of_bytes_is_refused_in_one_line(
    tmp_path: Path, content: object
) -> None:
    with pytest.raises(BrokenDataError, match="is refused: ") as caught:
        load_arrays(written(tmp_path, content, 2))
    assert str(caught.value).isprintable()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, CONTENT)
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(BrokenDataError, match="is refused: "):
            load_arrays(file)


def test_any_byte_changed_loads_plain_data_or_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, CONTENT)
    whole = file.read_bytes()
    for position in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            spoilt = bytearray(whole)
            spoilt[position] ^= flip
            file.write_bytes(spoilt)
            with suppress(BrokenDataError):
                assert isinstance(load_arrays(file), dict)


def test_a_pickle_cannot_change_what_the_next_one_meets(tmp_path: Path) -> None:
    file = tmp_path / "file.pkl"
    for state in (b"}U\x01aK\x01s", b"N}U\x08__call__K\x01s\x86"):
        file.write_bytes(b"\x80\x02cnumpy\ndtype\n" + state + b"b.")
        with pytest.raises(BrokenDataError):
            load_arrays(file)
    np.testing.assert_array_equal(load_arrays(written(tmp_path, CONTENT))["image_data"], IMAGES)
