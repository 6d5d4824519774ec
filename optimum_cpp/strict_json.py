"""A strict reader for JSON that somebody else may have written."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, NoReturn

from .errors import DataError

MAX_DEPTH = 64


def parse_json(data: bytes) -> Any:
    """Read JSON that somebody else may have written; stricter than `json.loads`.

    Raises:
        DataError: invalid UTF-8 or JSON, half of a character, a repeated key, NaN or Infinity, a number
            too large for float64, or nesting deeper than 64.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"Expected JSON in UTF-8, but byte {error.start} is not.") from None
    _check_depth(text)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"Expected valid JSON, but the parser says: {error}.") from None
    _check_characters(text, value)
    return value


def read_limited(path: str | os.PathLike[str], limit: int) -> bytes:
    """The bytes of a regular file, refused before reading if there are more than `limit`.

    Raises:
        DataError: it cannot be read, is no regular file, or is longer.
    """
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise DataError(f"Expected {os.fspath(path)} to be a regular file, but it is not.")
        if found.st_size > limit:
            raise DataError(f"Expected {os.fspath(path)} to hold at most {limit} bytes, but it holds {found.st_size}.")
        return Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"Expected {os.fspath(path)} to be a readable file, but {error.strerror}.") from error


def _check_characters(text: str, value: Any) -> None:
    """Refuse half of a surrogate pair, which an escape can write and no encoding can write again."""
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(
                f"Expected valid Unicode, but a string holds {error.object[error.start]!a} alone."
            ) from None


def _check_depth(text: str) -> None:
    """Count brackets before parsing, since the parser would recurse into them."""
    # Without its escapes, every second piece between quotes lies outside the strings.
    outside = "".join(re.sub(r"\\.", "", text, flags=re.DOTALL).split('"')[::2])
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", outside):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise DataError(f"Expected JSON nested at most {MAX_DEPTH} deep, but it is deeper.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DataError(f"Expected JSON with each key once, but {key!r} is repeated.")
        result[key] = value
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise DataError(f'Expected JSON without {name}; infinity is written as the string "inf".')


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise DataError(f"Expected numbers that fit float64, but got {text[:40]}.")
    return number
