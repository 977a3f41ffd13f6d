"""A name on the command line stands for one thing, or is refused with the nearest known one."""

from pathlib import Path

import pytest

from oclgrid.search_spaces.named import kind_of
from oclgrid.search_spaces.search import searches
from oclgrid.search_spaces.sweep import presets
from oclgrid.trainables.schema import SpecError


def test_no_search_has_the_name_of_a_sweep() -> None:
    assert not set(presets()) & set(searches())
    assert {kind_of(name) for name in presets()} == {"sweep"}
    assert {kind_of(name) for name in searches()} == {"search"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("sweep: x", "sweep"),
        ("search: x", "search"),
        ("serch: x\nspace: learning-rate", "search"),  # so that the right keys are suggested
        ("sweeep: x", "sweep"),
        ("[1, 2]", "sweep"),
    ],
)
def test_a_file_is_what_its_keys_say(text: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert kind_of(str(path)) == kind


def test_an_unknown_name_is_said_to_be_neither() -> None:
    with pytest.raises(SpecError, match="unknown sweep or search 'sdaf-lamda-tau'; did you mean"):
        kind_of("sdaf-lamda-tau")
