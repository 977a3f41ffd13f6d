"""Read a YAML file into plain data, or say in one line why it cannot be read."""

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
        keys = [self.construct_object(k, deep=True) for k, _ in node.value]
        for i, key in enumerate(keys):
            if key in keys[:i]:
                raise yaml.YAMLError(f"key {shown(key)} is given twice")
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file as plain data."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SpecError(f"{path} is larger than {MAX_BYTES} bytes; split it")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not UTF-8 text; save it as UTF-8") from error
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SpecError(f"{path} is not valid YAML: {reason[:200]}") from error
