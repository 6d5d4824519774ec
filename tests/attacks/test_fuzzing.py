"""The contract reader on broken bytes: a bounded run of the fuzzer, its earlier crashes, and edits of a real file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimum_cpp.contract import ReliabilityContract
from optimum_cpp.errors import ContractViolation

HERE = Path(__file__).parent
REAL = (HERE.parent / "contracts" / "schema-1" / "reliability_contract.json").read_bytes()
CRASHES = sorted((HERE / "crashes").iterdir())


def read(data: bytes) -> None:
    try:
        ReliabilityContract.from_bytes(data)
    except ContractViolation as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("path", CRASHES, ids=lambda path: path.name)
def test_what_once_crashed_is_refused(path: Path) -> None:
    read(path.read_bytes())


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(REAL) - 1), st.integers(0, 40), st.binary(max_size=20))
def test_any_edit_of_a_real_contract(place: int, length: int, inserted: bytes) -> None:
    read(REAL[:place] + inserted + REAL[place + length :])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    read(data)


def test_a_bounded_run_of_the_fuzzer_finds_nothing(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="the fuzzer has no wheel for this Python")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "real").write_bytes(REAL)
    (corpus / "small").write_bytes(b'{"claims": {"schema": 1}, "digest": "", "field_digests": {}, "record": {}}')
    for crash in CRASHES:
        (corpus / crash.name).write_bytes(crash.read_bytes())
    seconds = os.environ.get("FUZZ_SECONDS", "10")
    found = subprocess.run(
        [sys.executable, HERE / "fuzz_contract.py", corpus, f"-max_total_time={seconds}", "-rss_limit_mb=4096"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert not list(tmp_path.glob("crash-*")) and "DONE" in found.stderr
