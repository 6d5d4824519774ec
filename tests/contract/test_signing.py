"""Detached signatures with keys made here, through the real package."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from key_pairs import write_pair

from optimum_cpp import ReliabilityContract
from optimum_cpp.contract.signing import check_key, sign_contract, verify_signature
from optimum_cpp.errors import ContractViolation, MissingDependency, UsageError
from optimum_cpp.filenames import CONTRACT_NAME, SIGNATURE_NAME
from optimum_cpp.modeling import CPPResult
from optimum_cpp.recalibration import recalibrate
from optimum_cpp.verification import verify
from tiny_runs import labelled_rows, small_config


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("keys"), "author")


@pytest.fixture
def signed(served_copy: Path, keys: tuple[Path, Path]) -> Path:
    assert sign_contract(served_copy, keys[0]) == served_copy / SIGNATURE_NAME
    return served_copy


def test_a_signature_of_this_contract_holds(signed: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    assert verify_signature(signed, public_key=keys[1]).holds
    elsewhere = Path(shutil.move(signed / SIGNATURE_NAME, tmp_path / "contract.sig"))
    found = verify(signed, signature=elsewhere, public_key=keys[1])
    assert found.holds and "signature" in {finding.field for finding in found.findings}


def test_a_folder_that_is_linked_as_in_the_cache_of_the_hub(
    signed: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    blob = Path(shutil.move(signed / CONTRACT_NAME, tmp_path / "blob"))
    (signed / CONTRACT_NAME).symlink_to(blob)
    assert verify_signature(signed, public_key=keys[1]).holds


def test_an_edited_contract_with_fresh_digests_is_found(signed: Path, keys: tuple[Path, Path]) -> None:
    contract = ReliabilityContract.load(signed)
    contract.record["date"] = "yesterday"
    contract.save(signed)
    assert verify(signed).holds
    moved = [finding for finding in verify(signed, public_key=keys[1]).findings if not finding.holds]
    assert [finding.field for finding in moved] == ["signature"]


def test_another_key_does_not_do(signed: Path, tmp_path: Path) -> None:
    _, stranger = write_pair(tmp_path, "stranger")
    assert not verify_signature(signed, public_key=stranger).holds


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[1]", b'{"dsseEnvelope": {}}'])
def test_what_is_no_signature_does_not_hold(signed: Path, keys: tuple[Path, Path], content: bytes) -> None:
    (signed / SIGNATURE_NAME).write_bytes(content)
    finding = verify_signature(signed, public_key=keys[1])
    assert not finding.holds and finding.field == "signature" and finding.found


def test_a_calibration_signs_its_own_contract_before_the_folder_appears(
    pruned: CPPResult, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    result = recalibrate(
        pruned.directory,
        config=small_config(),
        dataset=labelled_rows(200, seed=56),
        save_directory=tmp_path / "out",
        sign=keys[0],
    )
    assert verify(result.directory, public_key=keys[1]).holds


@pytest.mark.parametrize("kind", ["missing", "no key", "a public key", "another algorithm", "a password"])
def test_a_key_that_cannot_sign_is_refused_before_anything_is_done(
    kind: str, keys: tuple[Path, Path], pruned: CPPResult, tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    if kind == "no key":
        key.write_text("hello")
    elif kind == "a public key":
        key = keys[1]
    elif kind == "another algorithm":
        key, _ = write_pair(tmp_path, "other", ed25519.Ed25519PrivateKey.generate())
    elif kind == "a password":
        key, _ = write_pair(tmp_path, "locked", password=b"secret")
    with pytest.raises(UsageError, match="`sign`"):
        check_key(key)
    with pytest.raises(UsageError, match="`sign`"):
        recalibrate(pruned.directory, config=small_config(), save_directory=tmp_path / "out", sign=key)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_asked(signed: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="either"):
        verify_signature(signed)
    with pytest.raises(UsageError, match="either"):
        verify_signature(signed, public_key=keys[1], identity="me@example.org", identity_provider="https://x")
    with pytest.raises(UsageError, match="either"):
        verify_signature(signed, identity="me@example.org")
    with pytest.raises(UsageError, match="`signature`"):
        verify_signature(signed, tmp_path / "none.sig", public_key=keys[1])
    with pytest.raises(UsageError, match="`public_key`"):
        verify_signature(signed, public_key=tmp_path / "none.pub")
    (signed / CONTRACT_NAME).unlink()
    with pytest.raises(ContractViolation, match="hold"):
        verify_signature(signed, public_key=keys[1])


def test_without_the_package_its_extra_is_named(keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    def missing(name: str, *arguments: Any) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingDependency, match=r"optimum-cpp\[signing\]"):
        check_key(keys[0])
