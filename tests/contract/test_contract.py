import dataclasses
import json
from pathlib import Path

import pytest

from optimum_cpp.contract import ReliabilityContract
from optimum_cpp.contract.canonical import canonical_bytes, digest
from optimum_cpp.errors import ContractViolation
from optimum_cpp.modeling import CPPResult


def test_a_contract_survives_its_file_and_its_bytes_are_canonical(pruned: CPPResult) -> None:
    data = (pruned.directory / "reliability_contract.json").read_bytes()
    contract = ReliabilityContract.from_bytes(data)
    assert contract.claims == pruned.contract.claims and contract.to_bytes() == data
    assert data == canonical_bytes(json.loads(data)) + b"\n"


def test_the_digest_covers_claims_and_nothing_else(pruned: CPPResult) -> None:
    contract = pruned.contract
    assert dataclasses.replace(contract, record={"date": "another"}).digest == contract.digest
    for item in dataclasses.fields(contract.claims):
        value = getattr(contract.claims, item.name)
        other = None if value is not None and item.name != "schema" else 7
        changed = dataclasses.replace(contract.claims, **{item.name: other})
        assert ReliabilityContract(changed).digest != contract.digest, item.name


def test_a_contract_checks_a_folder(pruned: CPPResult, served_copy: Path) -> None:
    assert all(finding.holds for finding in pruned.contract.verify(served_copy))
    (served_copy / "config.json").write_text("{}")
    moved = [finding.field for finding in pruned.contract.verify(served_copy) if not finding.holds]
    assert moved == ["model.files.config.json"]


def test_damaged_contracts_are_refused(pruned: CPPResult, tmp_path) -> None:
    whole = json.loads(pruned.contract.to_bytes())
    cases = {
        "cannot be read": b"{",
        "claims, digest, field_digests, record": b"[]",
        "schema": json.dumps(whole | {"claims": whole["claims"] | {"schema": 2}}).encode(),
        "claims.surprise is unknown": json.dumps(whole | {"claims": whole["claims"] | {"surprise": 1}}).encode(),
        "edited: their digest": json.dumps(whole | {"digest": "sha256:0"}).encode(),
        "edited: task.prompt no": json.dumps(
            whole | {"field_digests": whole["field_digests"] | {"task.prompt": "sha256:0"}}
        ).encode(),
    }
    for hint, data in cases.items():
        with pytest.raises(ContractViolation, match=hint):
            ReliabilityContract.from_bytes(data)
    with pytest.raises(ContractViolation, match=r"reliability_contract\.json"):
        ReliabilityContract.load(tmp_path)
    # A hole of a gigabyte: refused by its size, before a byte is read.
    with (tmp_path / "reliability_contract.json").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(ContractViolation, match="at most"):
        ReliabilityContract.load(tmp_path)


def rehashed(claims: dict) -> dict:
    """A contract file of these claims by somebody who knows the format."""

    def fields(value: dict, path: str) -> dict:
        found = {}
        for name, entry in value.items():
            # Objects of the format are fields of their own; files and matrices stay whole.
            inner = isinstance(entry, dict) and f"{path}{name}" not in ("model.files", "model.matrices")
            found |= fields(entry, f"{path}{name}.") if inner else {f"{path}{name}": digest(entry)}
        return found

    return {"claims": claims, "digest": digest(claims), "field_digests": fields(claims, ""), "record": {}}


@pytest.mark.parametrize(
    ("group", "change"),
    [
        ("task", {"kind": "foo"}),
        ("task", {"labels": []}),
        ("task", {"prompt": "no"}),
        ("task", {"max_text_tokens": 0}),
        ("score", {"name": "zzz"}),
        ("score", {"prior": []}),
        ("score", {"temperature": "0x0.0p+0"}),
        ("score", {"temperature": "warm"}),
        ("calibration", {"alpha": "2"}),
        ("calibration", {"alpha": "x"}),
        ("calibration", {"n": 3}),
        ("calibration", {"set_sizes": [1]}),
        ("calibration", {"top_probabilities": ["0x1.0p+1"]}),
        ("model", {"files": {"../config.json": {"sha256": "sha256:0", "size": 1}}}),
        ("model", {"files": {"..": {"sha256": "sha256:0", "size": 1}}}),
    ],
)
def test_claims_that_no_run_can_have_made_are_refused_even_with_a_fresh_digest(
    group: str, change: dict, pruned: CPPResult
) -> None:
    claims = json.loads(pruned.contract.to_bytes())["claims"]
    claims[group] |= change
    whole = rehashed(claims)
    with pytest.raises(ContractViolation, match="no calibration writes"):
        ReliabilityContract.from_bytes(json.dumps(whole).encode())


def test_the_record_says_what_happened(pruned: CPPResult) -> None:
    record = pruned.contract.record
    assert {"date", "packages", "device", "attention", "batch_versus_single", "stages"} <= set(record)
    assert 0 <= record["batch_versus_single"] < 1e-3
    assert record["stages"][0]["name"] == "prepare"
