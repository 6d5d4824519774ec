"""Rows from a file or from stdin: one text a line, or jsonl with labels where there are any."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..errors import DataError, UsageError
from ..strict_json import parse_json


@dataclass(frozen=True)
class Row:
    """One text, and whatever stands under the label column; None where nothing does."""

    text: str
    label: Any = None


def add_input(parser: argparse.ArgumentParser) -> None:
    """`--input`, by default stdin."""
    parser.add_argument(
        "--input", help="jsonl (objects with the text, or strings) or text file; default stdin, one text a line."
    )


def check_input(name: str | None) -> None:
    """Refuse an input that is no file, before any model is loaded.

    Raises:
        UsageError: it is not.
    """
    if name is not None and not Path(name).is_file():
        raise UsageError(f"Expected argument `input` to be a file, but {name!r} is not.")


def open_input(name: str | None) -> IO[bytes]:
    """The file, or stdin, which stays open."""
    return open(name, "rb") if name else open(sys.stdin.fileno(), "rb", closefd=False)


def read_rows(source: IO[bytes], name: str, text_column: str, label_column: str = "label") -> Iterator[Row]:
    """One text a line; in a jsonl file each line is an object with the text, or a string.

    Raises:
        DataError: a line that is not UTF-8 or JSON, or holds no text; the sentence names it.
    """
    for number, data in enumerate(source, start=1):
        place = f"line {number} of {name}"
        try:
            line = data.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise DataError(f"Expected {place} to be UTF-8 text, but it is not.") from None
        is_json = line.strip() and name.endswith((".jsonl", ".json"))
        row = _parse(line, place, text_column, label_column) if is_json else Row(line)
        if not row.text.strip():
            raise DataError(f"Expected {place} to hold a text, but it is empty.")
        yield row


def _parse(line: str, place: str, text_column: str, label_column: str) -> Row:
    try:
        value = parse_json(line.encode())
    except DataError as error:
        raise DataError(f"Expected {place} to be JSON, but: {error}") from None
    text, label = (value.get(text_column), value.get(label_column)) if isinstance(value, dict) else (value, None)
    if not isinstance(text, str):
        raise DataError(f"Expected {place} to hold a text under {text_column!r}; name its column with --text_column.")
    return Row(text, label)
