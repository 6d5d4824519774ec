"""Each field of the contract changed once: the check fails and names that field.

The fields come from the dataclasses in `optimum_cpp/contract/claims.py`, so a new one is attacked on the
day it is added.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from attacks.mutations import changed, completed, field_of, leaves, retyped, without
from optimum_cpp.contract import ReliabilityContract
from optimum_cpp.contract.canonical import canonical_bytes, digest, float_hex
from optimum_cpp.contract.claims import Claims
from optimum_cpp.contract.schema import build
from optimum_cpp.errors import ContractViolation
from optimum_cpp.modeling import CPPResult
from optimum_cpp.verification import verify

LEAVES = [pytest.param(path, id=".".join(map(str, path))) for path in leaves()]

# What nothing else in the folder contradicts when it is changed a little: here only a digest or a signature
# from elsewhere tells, and for what changes scores the model itself (--rescore).
ALONE = set(
    """
    task.name task.prompt task.max_text_tokens task.length_normalize task.labels.0.name
    score.temperature score.prior.0 score.allow_empty model.weights_digest
    pruning.dense_model pruning.dense_weights_digest pruning.base_pruner pruning.sparsity pruning.seed
    pruning.saliency.labels_per_example.0 selection.candidates.0.size_sum
    calibration.alpha calibration.scores.0 calibration.top_probabilities.0
    evaluation.0.quantile evaluation.0.covered evaluation.0.correct evaluation.0.empty
    """.split()
)


@pytest.fixture(scope="module")
def whole(pruned: CPPResult) -> dict[str, Any]:
    """A contract file in which no part is empty, with the digests that belong to it."""
    claims = completed(json.loads(canonical_bytes(asdict(pruned.contract.claims))))
    contract = ReliabilityContract(build(Claims, claims, "claims"))
    return dict(json.loads(contract.to_bytes()))


def refused(whole: dict[str, Any], claims: dict[str, Any]) -> str:
    with pytest.raises(ContractViolation) as found:
        ReliabilityContract.from_bytes(json.dumps(whole | {"claims": claims}).encode())
    return str(found.value)


def test_there_are_fields_to_attack() -> None:
    assert len(LEAVES) > 60
    assert {"calibration.quantile", "task.prompt", "pruning.saliency.threshold.width"} <= {
        field_of(path.values[0]) for path in LEAVES
    }


@pytest.mark.parametrize("path", LEAVES)
def test_another_value_is_named(whole: dict[str, Any], path: Any) -> None:
    message = refused(whole, changed(whole["claims"], path))
    assert field_of(path) in message or (path == ("schema",) and "schema" in message)


@pytest.mark.parametrize("attack", [retyped, without])
@pytest.mark.parametrize("path", LEAVES)
def test_another_type_and_a_missing_value_are_named(
    whole: dict[str, Any], path: Any, attack: Callable[..., Any]
) -> None:
    message = refused(whole, attack(whole["claims"], path))
    assert field_of(path) in message


@pytest.mark.parametrize("path", LEAVES)
def test_with_fresh_digests_other_fields_contradict_it_or_a_digest_from_elsewhere_does(
    pruned: CPPResult, tmp_path: Path, path: Any
) -> None:
    """As somebody does it who knows the format."""
    original = json.loads(pruned.contract.to_bytes())
    try:
        claims = changed(original["claims"], path)
    except (KeyError, TypeError, IndexError, StopIteration):
        pytest.skip("this part is empty in the tiny run")
    folder = Path(shutil.copytree(pruned.directory, tmp_path / "out"))
    contract = ReliabilityContract.from_bytes(canonical_bytes(original))
    try:
        forged = ReliabilityContract(build(Claims, claims, "claims"), contract.record)
        forged.save(folder)
        found = verify(folder, expected_digest=pruned.contract.digest).findings
    except ContractViolation as error:
        assert ".".join(map(str, path)) not in ALONE
        assert field_of(path).split(".")[0] in str(error)
        return
    moved = {finding.field for finding in found if not finding.holds}
    assert "digest" in moved
    assert (moved == {"digest"}) == (".".join(map(str, path)) in ALONE), moved
    assert digest(claims) != pruned.contract.digest


@pytest.mark.parametrize(
    ("group", "change"),
    [
        ("task", {"prompt": "Text: {text} Kind:"}),
        ("task", {"max_text_tokens": 2}),
        ("score", {"temperature": float_hex(1.5)}),
        ("model", {"weights_digest": "sha256:" + "0" * 64}),
    ],
)
def test_what_changes_scores_is_found_by_the_model_itself(
    served_copy: Path, pool_file: Path, group: str, change: dict[str, Any]
) -> None:
    contract = ReliabilityContract.load(served_copy)
    part = dataclasses.replace(getattr(contract.claims, group), **change)
    dataclasses.replace(contract, claims=dataclasses.replace(contract.claims, **{group: part})).save(served_copy)
    assert verify(served_copy, dataset=str(pool_file)).holds
    assert not verify(served_copy, dataset=str(pool_file), rescore=8).holds
