"""Read a YAML file into plain data, or say in one line why it cannot be read."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from oclgrid.trainables.schema import SpecError, shown

MAX_BYTES = 1_000_000


class _Loader(yaml.SafeLoader):
    """Safe YAML without aliases, which can blow up, and without keys given twice."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not supported; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):  # the base class refuses the others
                if key in seen:
                    raise yaml.YAMLError(f"key {shown(key)} is given twice")
                seen.add(key)
        return super().construct_mapping(node, deep)


# YAML 1.1 reads 1e-3 as a text; everybody means a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file as plain data."""
    try:
        if path.exists() and not path.is_file():
            raise SpecError(f"cannot read {path}: it is not a file; check the path")
        if path.stat().st_size > MAX_BYTES:
            raise SpecError(f"{path} is larger than {MAX_BYTES} bytes; split it")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except Exception as error:  # odd tags make PyYAML raise nearly anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SpecError(f"{path} is not valid YAML, mend it: {reason[:200]}") from error
