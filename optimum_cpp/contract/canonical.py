"""One text for one value: canonical JSON and its digest."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from typing import Any

from ..errors import DataError
from ..strict_json import MAX_DEPTH

CHUNK_BYTES = 1 << 20


def canonical_bytes(value: Any) -> bytes:
    """`value` as canonical JSON: UTF-8, keys sorted by code point, no blanks.

    Floats are written as `repr`, the shortest text that reads back to the same float64; infinities
    become the strings "inf" and "-inf". A list and a tuple give the same bytes.

    Raises:
        DataError: NaN, text that is no valid Unicode, nesting deeper than 64, or anything but str,
            int, float, bool, None, list, tuple and dict with str keys (subclasses, and so numpy
            scalars, among them); the sentence names the path.
    """
    return _encode(value, "value", 0).encode("utf-8")


def digest(value: Any) -> str:
    """The SHA-256 of the canonical bytes as "sha256:" and hex; errors as in `canonical_bytes`."""
    return "sha256:" + hashlib.sha256(canonical_bytes(value)).hexdigest()


def _encode(value: Any, path: str, depth: int) -> str:
    # Exact types: np.float64 is a subclass of float, and an enum may be one of str or int.
    kind = type(value)
    if kind in (list, tuple, dict):
        if depth == MAX_DEPTH:
            raise DataError(f"Expected the value to be nested at most {MAX_DEPTH} deep, but {path[:80]}... is deeper.")
        if kind is dict:
            return "{" + ",".join(_members(value, path, depth + 1)) + "}"
        return "[" + ",".join(_encode(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)) + "]"
    if kind is float:
        if math.isnan(value):
            raise DataError(f"Expected {path} to be a number, but it is NaN, which JSON cannot hold.")
        return repr(value) if math.isfinite(value) else f'"{value}"'
    if value is None or kind in (bool, int, str):
        return _encode_leaf(value, path)
    raise DataError(
        f"Expected {path} to be str, int, float, bool, None, list, tuple or dict, "
        f"but it is {kind.__module__}.{kind.__qualname__}; convert it first."
    )


def _members(value: dict[Any, Any], path: str, depth: int) -> list[str]:
    for key in value:
        if type(key) is not str:
            raise DataError(f"Expected the keys of {path} to be str, but got {key!r}.")
    return [
        f"{_encode_leaf(key, f'a key of {path}')}:{_encode(value[key], f'{path}.{key}', depth)}"
        for key in sorted(value)
    ]


def _encode_leaf(value: str | int | bool | None, path: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode("utf-8")
    except ValueError as error:  # a lone surrogate, or a number with too many digits
        raise DataError(f"Expected {path} to be valid Unicode or a number of JSON, but {error}.") from None
    return text


def file_digest(path: str | os.PathLike[str], progress: Callable[[int], object] | None = None) -> str:
    """The SHA-256 of a file's bytes as "sha256:" and hex, read in pieces of 1 MiB.

    Args:
        path: the file.
        progress: called with the number of bytes of each piece.

    Raises:
        DataError: the file cannot be read.
    """
    state = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while piece := file.read(CHUNK_BYTES):
                state.update(piece)
                if progress is not None:
                    progress(len(piece))
    except OSError as error:
        raise DataError(f"Expected {os.fspath(path)} to be a readable file, but {error.strerror}.") from error
    return "sha256:" + state.hexdigest()


def float_hex(x: float) -> str:
    """A float64 as exact hex text, such as 0x1.8p+1; infinities as "inf" and "-inf".

    Raises:
        DataError: NaN, or not a float64 number.
    """
    if not isinstance(x, float) or math.isnan(x):
        raise DataError(f"Expected a float64 number to write as hex text, but got {x!r}.")
    return float(x).hex()


def from_hex(text: str) -> float:
    """The inverse of `float_hex`; only the one text that `float_hex` writes is read.

    Raises:
        DataError: any other text.
    """
    try:
        value = float.fromhex(text)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if math.isnan(value) or value.hex() != text:
        raise DataError(f"Expected a float64 as hex text, such as 0x1.8p+1 or inf, but got {text!r}.")
    return value
