import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimum_cpp.errors import DataError
from optimum_cpp.strict_json import parse_json


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a":1,"a":2}', "'a' is repeated"),
        (b'{"b":[{"a":1,"\\u0061":1}]}', "'a' is repeated"),
        (b"[NaN]", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "fit float64, but got 1e999"),
        (b"[-1e999]", "fit float64"),
        (b'["\xff"]', "UTF-8, but byte 2"),
        ('"é"'.encode("utf-16"), "UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"", "valid JSON"),
        (b"{} {}", "valid JSON"),
        (b"{'a': 1}", "valid JSON"),
        (b'{"a":1,}', "valid JSON"),
        (b'"\x01"', "valid JSON"),
        (b"1" * 5000, "valid JSON"),
        (b"[" * 100_000, "64 deep"),
        (b'{"a":' * 100_000, "64 deep"),
        (b'["\\"", ' + b"[" * 100_000, "64 deep"),
        (b'["\\\\", ' + b"[" * 100_000, "64 deep"),
    ],
)
def test_the_reader_refuses(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_json(data)


@pytest.mark.parametrize("text", ["[" * 100, "{" * 100, '"' + "[" * 100, "\\" + "[" * 100, '\\"' + "]" * 100])
def test_brackets_inside_strings_are_not_nesting(text: str) -> None:
    assert parse_json(json.dumps([text, {text: 1}]).encode()) == [text, {text: 1}]


def test_many_shallow_brackets_are_not_nesting() -> None:
    assert parse_json(b"[" + b"[]," * 1000 + b"[]]") == [[]] * 1001


@settings(deadline=None)
@given(st.binary(max_size=40) | st.text('{}[]",:\\u0e1-naftrue. ', max_size=40).map(str.encode))
def test_the_reader_raises_nothing_else(data: bytes) -> None:
    try:
        value = parse_json(data)
    except DataError:
        return
    assert value == json.loads(data)
