"""Every field of a contract, found from the dataclasses that define it, and how to change one."""

from __future__ import annotations

import copy
import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

from optimum_cpp.contract.canonical import float_hex
from optimum_cpp.contract.claims import Claims

# Steps into a value: a key, or the first entry of a list or of a table with free keys.
FIRST = 0
Path = tuple[str | int, ...]

# What stands in a part that the tiny run of the tests leaves out.
EXAMPLES: dict[type, Any] = {int: 3, str: float_hex(0.5), bool: True, float: 0.01}


def leaves(kind: Any = Claims, path: Path = ()) -> Iterator[Path]:
    """Path of every number, text and truth value that a contract may hold."""
    inner = [option for option in typing.get_args(kind) if option not in (type(None), Ellipsis)]
    if dataclasses.is_dataclass(kind):
        for name, hint in typing.get_type_hints(kind).items():
            yield from leaves(hint, (*path, name))
    elif typing.get_origin(kind) in (types.UnionType, typing.Union):
        yield from leaves(inner[0], path)
    elif typing.get_origin(kind) in (tuple, dict):
        yield from leaves(inner[-1], (*path, FIRST))
    else:
        yield path


def example(kind: Any) -> Any:
    """A plain value of a claim's type."""
    inner = [option for option in typing.get_args(kind) if option not in (type(None), Ellipsis)]
    if dataclasses.is_dataclass(kind):
        return {name: example(hint) for name, hint in typing.get_type_hints(kind).items()}
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return example(inner[0])
    if typing.get_origin(kind) is tuple:
        return [example(option) for option in inner]
    if typing.get_origin(kind) is dict:
        return {"name": example(inner[-1])}
    return EXAMPLES[kind]


def completed(plain: Any, kind: Any = Claims) -> Any:
    """The claims with an example wherever they hold nothing, so that every leaf can be reached."""
    if plain in (None, [], (), {}):
        return example(kind)
    inner = [option for option in typing.get_args(kind) if option not in (type(None), Ellipsis)]
    if dataclasses.is_dataclass(kind):
        return {name: completed(plain[name], hint) for name, hint in typing.get_type_hints(kind).items()}
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return completed(plain, inner[0])
    if isinstance(plain, (list, tuple)):
        return [completed(entry, inner[0]) for entry in plain]
    if isinstance(plain, dict):
        return {name: completed(entry, inner[-1]) for name, entry in plain.items()}
    return plain


def field_of(path: Path) -> str:
    """The field of the contract that a leaf belongs to: lists and tables are fields as a whole."""
    return ".".join(str(step) for step in path[: path.index(FIRST) if FIRST in path else None])


def holder(claims: Any, path: Path) -> tuple[Any, str | int]:
    """The object or list that holds a leaf, and its key there."""
    for step in path[:-1]:
        claims = claims[_key(claims, step)]
    return claims, _key(claims, path[-1])


def changed(claims: dict[str, Any], path: Path) -> dict[str, Any]:
    """A copy with another value of the same type at a leaf."""
    claims = copy.deepcopy(claims)
    place, key = holder(claims, path)
    value = place[key]
    if isinstance(value, bool):
        place[key] = not value
    elif isinstance(value, str):
        place[key] = _other_text(value)
    else:
        place[key] = value + 1
    return claims


def _other_text(text: str) -> str:
    """Another text of the same form: a digest, an exact number, a decimal number, or words."""
    if re.fullmatch("sha256:[0-9a-f]{64}", text):
        return text[:-1] + ("0" if text[-1] != "0" else "1")
    if re.fullmatch(r"-?0x[0-9a-f.]+p[+-]\d+", text):
        return math.nextafter(float.fromhex(text), math.inf).hex()
    return text + ("1" if re.fullmatch(r"\d+(\.\d+)?", text) else " ")


def retyped(claims: dict[str, Any], path: Path) -> dict[str, Any]:
    """A copy with a value of another type at a leaf."""
    claims = copy.deepcopy(claims)
    place, key = holder(claims, path)
    place[key] = [1] if isinstance(place[key], (str, bool)) else "1"
    return claims


def without(claims: dict[str, Any], path: Path) -> dict[str, Any]:
    """A copy that lacks a leaf."""
    claims = copy.deepcopy(claims)
    place, key = holder(claims, path)
    del place[key]
    return claims


def _key(value: Any, step: str | int) -> str | int:
    return next(iter(value)) if step == FIRST and isinstance(value, dict) else step
