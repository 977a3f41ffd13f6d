"""Build a frozen dataclass from plain data, refusing whatever does not fit."""

import difflib
import math
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

LARGEST = 2**53
"""Whole numbers up to this are exact in JSON and as floating point."""


class SpecError(ValueError):
    """A request that cannot be carried out as written; its author can mend it.

    The message is one printable line, whatever the request was.
    """

    def __init__(self, message: str) -> None:
        line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
        super().__init__(line if len(line) <= 390 else line[:387] + "...")


def unknown(kind: str, name: object, known: Iterable[str]) -> SpecError:
    """Return the error for a name that does not exist, with the nearest one that does."""
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1) if isinstance(name, str) else []
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(choices)}"
    return SpecError(f"unknown {kind} {shown(name)}; {hint}")


def shown(value: object) -> str:
    """Return a value as it may stand in a one-line message, however long or odd it is."""
    try:
        text = ascii(value)
    except ValueError:  # a whole number of thousands of digits
        text = "a number too long to write"
    return text if len(text) <= 60 else text[:57] + "..."


def named(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return the fields of a config under the names a file has for them."""
    flat: dict[str, Any] = {}
    for field in fields(config):
        name = prefix + field.metadata.get("paper", field.name)
        value = getattr(config, field.name)
        if is_dataclass(value):
            flat.update(named(value, f"{name}."))
        else:
            flat[name] = value
    return flat


def build(cls: type[T], data: object, *, where: str, base: T | None = None) -> T:
    """Return ``cls`` made from a mapping, with every key and type checked.

    Args:
        cls: A dataclass; the types and rules of its fields are the schema. A field whose
            metadata has "paper" goes by that name, the paper's symbol for it.
        data: What was read. Missing fields keep the value of ``base`` or their default.
        where: Path of the mapping in the file, for messages.
        base: Instance whose values stand where ``data`` is silent.
    """
    if not isinstance(data, Mapping):
        raise SpecError(f"{where} must be a mapping of fields to values, got {shown(data)}")
    hints = get_type_hints(cls)
    known = fields(cls)  # type: ignore[arg-type]  # cls is a dataclass
    names = {f.metadata.get("paper", f.name): f.name for f in known}
    values: dict[str, Any] = {} if base is None else {f.name: getattr(base, f.name) for f in known}
    for key, value in data.items():
        name = names.get(key) if isinstance(key, str) else None
        if name is None:
            raise unknown(f"key of {where}", key, names)
        values[name] = coerce(hints[name], value, f"{where}.{key}", values.get(name))
    for f in known:
        if f.name not in values and f.default is MISSING and f.default_factory is MISSING:
            raise SpecError(f"{where}.{f.name} is missing; add it")
    try:
        return cls(**values)
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(f"{where}: {error}") from error


def check_fields(instance: Any, where: str) -> None:
    """Give every field of a frozen dataclass its annotated type, or refuse its value."""
    for name, hint in get_type_hints(type(instance)).items():
        if get_origin(hint) is not ClassVar:
            value = coerce(hint, getattr(instance, name), f"{where}.{name}")
            object.__setattr__(instance, name, value)


def coerce(hint: Any, value: object, where: str, base: object = None) -> Any:
    """Return ``value`` as the annotated type, or say what was wanted and what came."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]  # hint is a class
            return value
        return build(hint, value, where=where, base=base)  # type: ignore[arg-type]
    if origin is Literal:
        if not any(type(value) is type(a) and value == a for a in args):
            wanted = ", ".join(str(a) for a in args)
            raise SpecError(f"{where} must be one of {wanted}; got {shown(value)}")
        return value
    if origin in (Union, types.UnionType):
        return _coerce_union(args, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            return (coerce(args[0], value, where),)
        if not value:
            raise SpecError(f"{where} must have at least one entry, got an empty list")
        return tuple(coerce(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if type(value) is int and abs(value) > LARGEST:
        raise SpecError(f"{where} must not exceed 2^53 in size, got {shown(value)}")
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint or (isinstance(value, float) and not math.isfinite(value)):
        raise SpecError(f"{where} must be {_TYPE_NAMES[hint]}, got {shown(value)}")
    return value


def _coerce_union(options: tuple[Any, ...], value: object, where: str) -> Any:
    errors: list[str] = []
    for option in options:
        if option is type(None):
            if value is None:
                return None
            continue
        try:
            return coerce(option, value, where)
        except SpecError as error:
            if str(error) not in errors:
                errors.append(str(error))
    raise SpecError(" or ".join([errors[0], *(e.removeprefix(f"{where} ") for e in errors[1:])]))


_TYPE_NAMES = {
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    bool: "true or false",
}
