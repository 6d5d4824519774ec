import dataclasses
import json

import pytest

from optimum_cpp.contract import ReliabilityContract
from optimum_cpp.contract.canonical import canonical_bytes
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


def test_damaged_contracts_are_refused(pruned: CPPResult, tmp_path) -> None:
    whole = json.loads(pruned.contract.to_bytes())
    cases = {
        "cannot be read": b"{",
        "claims, digest and record": b"[]",
        "schema": json.dumps(whole | {"claims": whole["claims"] | {"schema": 2}}).encode(),
        "claims.surprise is unknown": json.dumps(whole | {"claims": whole["claims"] | {"surprise": 1}}).encode(),
        "edited": json.dumps(whole | {"digest": "sha256:0"}).encode(),
    }
    for hint, data in cases.items():
        with pytest.raises(ContractViolation, match=hint):
            ReliabilityContract.from_bytes(data)
    with pytest.raises(ContractViolation, match=r"reliability_contract\.json"):
        ReliabilityContract.load(tmp_path)


def test_the_record_says_what_happened(pruned: CPPResult) -> None:
    record = pruned.contract.record
    assert {"date", "packages", "device", "attention", "batch_versus_single", "stages"} <= set(record)
    assert 0 <= record["batch_versus_single"] < 1e-3
    assert record["stages"][0]["name"] == "prepare"
