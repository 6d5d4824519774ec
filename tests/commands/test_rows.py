from __future__ import annotations

import io

import pytest

from optimum_cpp.commands.rows import Row, check_input, read_rows
from optimum_cpp.errors import DataError, UsageError


def rows_of(data: bytes, name: str, text_column: str = "text", label_column: str = "label") -> list[Row]:
    return list(read_rows(io.BytesIO(data), name, text_column, label_column))


def test_a_text_file_holds_one_text_a_line() -> None:
    assert rows_of(b'one\r\n{"text": 1}\nlast', "rows.txt") == [Row("one"), Row('{"text": 1}'), Row("last")]


def test_a_jsonl_file_holds_objects_or_strings() -> None:
    data = '{"note": "größer", "kind": 3}\n"a string"\n{"note": "x", "other": 1}\n'.encode()
    assert rows_of(data, "rows.jsonl", "note", "kind") == [Row("größer", 3), Row("a string"), Row("x")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"text": "a"}\n{"text": 7}\n', "line 2 of rows.jsonl to hold a text under 'text'"),
        (b'{"text": "a"}\n\n', "line 2 of rows.jsonl to hold a text, but it is empty"),
        (b"{\n", "line 1 of rows.jsonl to be JSON"),
        (b'{"text": "a", "text": "b"}\n', "line 1 of rows.jsonl to be JSON"),
        (b"\xff\n", "line 1 of rows.jsonl to be UTF-8"),
        (b"[1]\n", "line 1 of rows.jsonl to hold a text"),
    ],
)
def test_a_bad_line_is_named(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows_of(data, "rows.jsonl")


def test_a_missing_file_is_named() -> None:
    check_input(None)
    with pytest.raises(UsageError, match=r"no\.jsonl"):
        check_input("no.jsonl")
