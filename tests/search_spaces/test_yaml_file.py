"""Files that are no sweep: what is said of text, bytes and numbers nobody meant."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oclgrid.search_spaces.sweep import read_sweep
from oclgrid.search_spaces.yaml_file import MAX_BYTES
from oclgrid.trainables.schema import SpecError

Write = Callable[[str], str]
TEXT = "sweep: x\ncells: {dataset: digits, memory: 10, method: er}\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a sweep file and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "file.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def refusal(file: str | Path) -> str:
    """Return the message of the SpecError, which must be one printable line."""
    with pytest.raises(SpecError) as caught:
        read_sweep(str(file))
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 400
    return message


HUGE = "0x" + "f" * 5000


@pytest.mark.parametrize(
    "text",
    [
        f"sweep: {HUGE}\ncells: {{dataset: digits, memory: 10, method: er}}\n",
        f"sweep: x\ncells: {{dataset: digits, method: er, memory: {HUGE}}}",
        f"sweep: x\ncells: {{dataset: digits, method: er, memory: -{'9' * 900}}}",
        f"sweep: x\ncells: {{dataset: digits, method: er, memory: 1, seed: {HUGE}}}",
        f"sweep: x\ncells: {{dataset: digits, method: er, memory: 1, orders: {HUGE}}}",
        f"{TEXT}overrides: {{er: {{batch_size: -{HUGE}}}}}",
        f"{TEXT}overrides: {{er: {{batch_size: -{'9' * 900}}}}}",
        f"{TEXT}resources: {{cpus: {'9' * 900}}}",
        f"{TEXT}? {HUGE}\n: 1",
    ],
)
def test_a_number_too_long_to_write_is_refused(write: Write, text: str) -> None:
    refusal(write(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT + "sweep: y\n", "key 'sweep' is given twice"),
        ("sweep: &a x\nabout: *a\n", "aliases (*name) are not supported; write the value out"),
        ("sweep: [\n", "is not valid YAML"),
        ("sweep: x\n  cells: y\n", "line 2"),
        ("sweep: !!python/object:os.system x\n", "is not valid YAML"),
        ("sweep: !!timestamp x\n", "is not valid YAML"),
        ("sweep: !!bool x\n", "is not valid YAML"),
        ("sweep: !!int ''\n", "is not valid YAML"),
        ("sweep: !!float ''\n", "is not valid YAML"),
        ("sweep: 2024-13-45\n", "is not valid YAML"),
        ("sweep: [a\u202e\ue000 \n b: c: d\n", "is not valid YAML"),
        ("{" * 1000, "is not valid YAML"),
        ("a: 1\n---\nb: 2\n", "is not valid YAML"),
        ("", "must be a mapping with sweep and cells, got None"),
        ("- sweep\n", "must be a mapping with sweep and cells, got ['sweep']"),
        ("just words\n", "must be a mapping with sweep and cells, got 'just words'"),
    ],
)
def test_text_that_is_no_sweep_is_refused(write: Write, text: str, said: str) -> None:
    message = refusal(write(text))
    assert "file.yaml" in message
    assert said in message


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(b"sweep: \xff\xfe\n")
    message = refusal(path)
    assert message == f"{path} is not UTF-8 text; save it as UTF-8"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    message = refusal(path)
    assert message == f"cannot read {path}: No such file or directory; check the path"


def test_a_folder_is_not_read_as_a_file(tmp_path: Path) -> None:
    message = refusal(tmp_path)
    assert message == f"cannot read {tmp_path}: it is not a file; check the path"


def test_a_file_too_large_to_be_a_sweep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(TEXT + "#" * MAX_BYTES, encoding="utf-8")
    message = refusal(path)
    assert message == f"{path} is larger than {MAX_BYTES} bytes; split it"


def test_a_file_name_of_two_lines_is_told_in_one(tmp_path: Path) -> None:
    assert "cannot read" in refusal(tmp_path / "a\nb.yaml")
