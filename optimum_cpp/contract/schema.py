"""Plain JSON values into the contract's dataclasses, strict about every field."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar

from ..errors import ContractViolation

T = TypeVar("T")


def build(kind: type[T], value: Any, path: str) -> T:
    """An instance of the dataclass `kind`; its own annotations are the schema.

    Raises:
        ContractViolation: a missing or unknown field, or a value of another type; the path is named.
    """
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value)
    hints = typing.get_type_hints(kind)
    names = [item.name for item in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in sorted(set(value) ^ set(names)):
        problem = "missing" if name in names else "unknown"
        raise ContractViolation(f"The contract's field {path}.{name} is {problem}.")
    return kind(**{name: _convert(hints[name], value[name], f"{path}.{name}") for name in names})


def _convert(hint: Any, value: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        present = next(option for option in arguments if option is not type(None))
        return None if value is None else _convert(present, value, path)
    if dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, path)
    if origin is tuple:
        return _sequence(arguments, value, path)
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        return {key: _convert(arguments[1], entry, f"{path}.{key}") for key, entry in value.items()}
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise _wrong(path, hint.__name__, value)
    return value


def _sequence(arguments: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _wrong(path, "a list", value)
    kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
    if len(kinds) != len(value):
        raise _wrong(path, f"a list of {len(kinds)}", value)
    return tuple(
        _convert(kind, entry, f"{path}[{i}]") for i, (kind, entry) in enumerate(zip(kinds, value, strict=True))
    )


def _wrong(path: str, expected: str, value: Any) -> ContractViolation:
    return ContractViolation(f"Expected the contract's field {path} to be {expected}, but got {str(value)[:60]!r}.")
