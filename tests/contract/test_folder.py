import dataclasses
import hashlib
from pathlib import Path

import pytest

from optimum_cpp.contract import ReliabilityContract, file_claims, require, verify_folder
from optimum_cpp.contract.canonical import float_hex, from_hex
from optimum_cpp.errors import ContractViolation
from optimum_cpp.modeling import CPPResult


def test_everything_holds_on_an_untouched_folder(pruned: CPPResult) -> None:
    findings = verify_folder(pruned.directory, pruned.contract.claims)
    assert all(finding.holds for finding in findings)
    fields = {finding.field for finding in findings}
    assert {"model.files.model.safetensors", "model.files.tokenizer.json", "model.files.config.json"} <= fields
    assert {"manifest_digest", "calibration.n", "calibration.k", "calibration.quantile"} <= fields
    require(findings)


def test_file_claims_are_plain_sha256_of_what_loading_reads(pruned: CPPResult) -> None:
    claims = file_claims(pruned.directory)
    data = (pruned.directory / "model.safetensors").read_bytes()
    assert claims["model.safetensors"].sha256 == "sha256:" + hashlib.sha256(data).hexdigest()
    assert claims["model.safetensors"].size == len(data)
    assert not {"README.md", "reliability_contract.json", "split_manifest.json"} & set(claims)


def test_a_card_and_a_report_may_change(served_copy: Path) -> None:
    (served_copy / "README.md").write_text("mine")
    (served_copy / "report" / "more.png").write_bytes(b"")
    require(verify_folder(served_copy, ReliabilityContract.load(served_copy).claims))


@pytest.mark.parametrize(
    ("field", "value"),
    [("alpha", "0.25"), ("n", 61), ("k", 48), ("quantile", "inf"), ("scores", None)],
)
def test_the_quantile_is_recomputed_from_the_stored_scores(pruned: CPPResult, field: str, value: object) -> None:
    claim = pruned.contract.claims.calibration
    if field == "scores":
        # Every score a little larger: the k-th smallest moves with them.
        value = tuple(float_hex(from_hex(score) + 1) for score in claim.scores)
    changed = dataclasses.replace(claim, **{field: value})
    contract = ReliabilityContract(dataclasses.replace(pruned.contract.claims, calibration=changed))
    moved = {finding.field for finding in verify_folder(pruned.directory, contract.claims) if not finding.holds}
    expected = {"alpha": "k", "n": "n", "k": "k", "quantile": "quantile", "scores": "quantile"}[field]
    assert f"calibration.{expected}" in moved
    with pytest.raises(ContractViolation, match="calibrate"):
        require(verify_folder(pruned.directory, contract.claims))


def test_a_missing_file_and_a_missing_manifest_are_named(served_copy: Path) -> None:
    contract = ReliabilityContract.load(served_copy)
    (served_copy / "tokenizer.json").unlink()
    (served_copy / "split_manifest.json").unlink()
    moved = {finding.field: finding for finding in verify_folder(served_copy, contract.claims) if not finding.holds}
    assert set(moved) == {"model.files.tokenizer.json", "manifest_digest"}
    assert moved["model.files.tokenizer.json"].found == "no such file"
