"""Canonical JSON, digests, the strict reader and hex floats."""

from __future__ import annotations

import hashlib
import json
import math
import tracemalloc
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimum_cpp.contract.canonical import (
    canonical_bytes,
    digest,
    file_digest,
    float_hex,
    from_hex,
)
from optimum_cpp.errors import DataError
from optimum_cpp.strict_json import parse_json

texts = st.text(st.characters(exclude_categories=["Cs"]))
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [1.5, True, None, "x"]}, b'{"a":[1.5,true,null,"x"],"b":1}'),
        ({"é": "é", "Z": '\n"\\'}, '{"Z":"\\n\\"\\\\","é":"é"}'.encode()),
        ([math.inf, -math.inf, 0.1, -0.0, 1e300, 1.0], b'["inf","-inf",0.1,-0.0,1e+300,1.0]'),
        ((), b"[]"),
        ({}, b"{}"),
        ("\u2028😀\x7f", '"\u2028😀\x7f"'.encode()),
        (10**30, b"1" + b"0" * 30),
        ({"10": 0, "9": 0, "a": 0, "B": 0}, b'{"10":0,"9":0,"B":0,"a":0}'),
    ],
)
def test_known_bytes(value: Any, expected: bytes) -> None:
    assert canonical_bytes(value) == expected


def test_known_digest() -> None:
    assert digest({}) == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert digest({"a": 1}) == "sha256:" + hashlib.sha256(b'{"a":1}').hexdigest()


@settings(deadline=None)
@given(values)
def test_round_trip(value: Any) -> None:
    data = canonical_bytes(value)
    back = parse_json(data)
    assert back == value
    assert canonical_bytes(back) == data
    assert data.decode("utf-8") == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@settings(deadline=None)
@given(st.dictionaries(texts, leaves, min_size=2))
def test_order_of_insertion_does_not_matter(value: dict[str, Any]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)


def test_types_are_told_apart() -> None:
    assert len({canonical_bytes(value) for value in (1, 1.0, True, "1")}) == 4
    assert canonical_bytes([1, 2]) == canonical_bytes((1, 2))


class Name(str):
    """Equal to its text, and yet not a plain str."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"claims": {"scores": [0.0, math.nan]}}, r"value\.claims\.scores\[1\].*NaN"),
        ({"a": [1, np.float64(0.5)]}, r"value\.a\[1\].*numpy\.float64"),
        ({"a": np.float32(0.5)}, r"value\.a .*numpy\.float32"),
        ({"a": np.int64(3)}, r"value\.a .*numpy\.int64"),
        ({"a": np.bool_(True)}, r"value\.a .*numpy\.bool"),
        (np.zeros(2), r"value .*numpy\.ndarray"),
        ({"a": {1, 2}}, r"value\.a .*set"),
        ({"a": b"bytes"}, r"value\.a .*bytes"),
        ({"a": Name("red")}, r"value\.a .*Name"),
        ({"a": OrderedDict()}, r"value\.a .*OrderedDict"),
        ({"a": {1: 2}}, r"keys of value\.a .*got 1"),
        ({"a": {None: 2, "b": 3}}, r"keys of value\.a .*got None"),
        ({"a": "\ud800"}, r"value\.a .*Unicode"),
        ({"a": {"\ud800": 1}}, r"a key of value\.a .*Unicode"),
        ({"a": 10**5000}, r"value\.a .*digits"),
    ],
)
def test_what_has_no_canonical_form_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        canonical_bytes(value)


def nested(depth: int) -> Any:
    value: Any = 0
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_nesting_of_64_is_written_and_read_and_65_is_not() -> None:
    assert parse_json(canonical_bytes(nested(64))) == nested(64)
    with pytest.raises(DataError, match="64 deep"):
        canonical_bytes(nested(65))
    with pytest.raises(DataError, match="64 deep"):
        parse_json(json.dumps(nested(65)).encode())


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(DataError, match="64 deep"):
        canonical_bytes(loop)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 7])
def test_file_digest(tmp_path: Path, size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    path = tmp_path / "weights.bin"
    path.write_bytes(content)
    pieces: list[int] = []
    assert file_digest(path, progress=pieces.append) == "sha256:" + hashlib.sha256(content).hexdigest()
    assert sum(pieces) == size
    assert file_digest(str(path)) == file_digest(path)


def test_file_digest_reads_in_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    with open(path, "wb") as file:
        file.truncate(64 << 20)
    tracemalloc.start()
    try:
        file_digest(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_file_digest_of_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent.*No such file"):
        file_digest(tmp_path / "absent")
    with pytest.raises(DataError, match="directory"):
        file_digest(tmp_path)


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_hex_round_trip(x: float) -> None:
    back = from_hex(float_hex(x))
    assert back == x
    assert math.copysign(1, back) == math.copysign(1, x)


@pytest.mark.parametrize(
    ("x", "text"),
    [(3.0, "0x1.8000000000000p+1"), (math.inf, "inf"), (-math.inf, "-inf"), (0.0, "0x0.0p+0")],
)
def test_hex_table(x: float, text: str) -> None:
    assert float_hex(x) == text
    assert from_hex(text) == x


def test_hex_of_a_numpy_float64_is_that_of_the_float() -> None:
    assert float_hex(np.float64(0.1)) == (0.1).hex()


@pytest.mark.parametrize("x", [math.nan, np.float32(0.5), 1, "1.0", None])
def test_float_hex_refuses_what_is_no_float64(x: Any) -> None:
    with pytest.raises(DataError, match="float64"):
        float_hex(x)


@pytest.mark.parametrize(
    "text",
    ["", "nan", "1.5", "0x1p+1", "Inf", "infinity", " 0x1.8000000000000p+1", "0x1.0p+5000", "10", None, 1.5],
)
def test_from_hex_refuses_other_texts(text: Any) -> None:
    with pytest.raises(DataError, match="hex text"):
        from_hex(text)
