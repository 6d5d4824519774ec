import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from optimum_cpp.contract import ReliabilityContract
from optimum_cpp.contract.canonical import digest, file_digest, float_hex, from_hex
from optimum_cpp.contract.claims import FileClaim
from optimum_cpp.errors import ContractViolation, UsageError
from optimum_cpp.modeling import CPPResult
from optimum_cpp.verification import verify


def moved(*arguments: object, **options: object) -> set[str]:
    """Fields that do not hold."""
    return {finding.field for finding in verify(*arguments, **options).findings if not finding.holds}  # type: ignore[arg-type]


def rewrite(folder: Path, **groups: dict[str, object]) -> None:
    """A contract with changed claims and fresh digests, as somebody who knows the format would write it."""
    contract = ReliabilityContract.load(folder)
    changes = {name: dataclasses.replace(getattr(contract.claims, name), **fields) for name, fields in groups.items()}
    dataclasses.replace(contract, claims=dataclasses.replace(contract.claims, **changes)).save(folder)


def test_everything_of_an_untouched_folder_holds_and_every_field_has_its_line(
    pruned: CPPResult, pool_file: Path
) -> None:
    found = verify(pruned.directory, dataset=str(pool_file), rescore=20, expected_digest=pruned.contract.digest)
    assert found.holds and found.digest == pruned.contract.digest
    fields = {finding.field for finding in found.findings}
    assert set(pruned.contract.field_digests) <= fields
    assert {f"model.matrices.{name}" for name in pruned.contract.claims.model.matrices} <= fields
    assert {"manifest.roles.conformal", "manifest.roles.test.indices", "manifest.duplicates.near"} <= fields
    assert {"calibration.scores", "selection.lam", "evaluation.chosen.band", "verdicts.validity"} <= fields


def test_a_digest_from_elsewhere_is_compared(pruned: CPPResult) -> None:
    assert moved(pruned.directory, expected_digest="sha256:0") == {"digest"}


def test_a_revived_weight_is_named_by_file_and_by_matrix_even_with_fresh_digests(served_copy: Path) -> None:
    weights = load_file(served_copy / "model.safetensors")
    name = next(iter(ReliabilityContract.load(served_copy).claims.model.matrices))
    row, column = torch.nonzero(weights[f"{name}.weight"] == 0)[0].tolist()
    weights[f"{name}.weight"][row, column] = 1.0
    save_file(weights, served_copy / "model.safetensors", metadata={"format": "pt"})
    assert moved(served_copy) == {"model.files.model.safetensors", f"model.matrices.{name}"}
    files = dict(ReliabilityContract.load(served_copy).claims.model.files)
    path = served_copy / "model.safetensors"
    files[path.name] = FileClaim(file_digest(path), path.stat().st_size)
    rewrite(served_copy, model={"files": files})
    assert moved(served_copy) == {f"model.matrices.{name}"}


@pytest.mark.parametrize(
    ("group", "change", "field"),
    [
        ("calibration", {"alpha": "0.3"}, "calibration.k"),
        ("calibration", {"quantile": float_hex(512.0)}, "calibration.quantile"),
        ("pruning", {"lam": "0.9"}, "pruning.lam"),
        ("pruning", {"sparsity": "0.9"}, "pruning.sparsity"),
        ("selection", {"lam": "0.9"}, "selection.lam"),
        ("verdicts", {"validity": "fails"}, "verdicts.validity"),
        ("verdicts", {"epsilon_size": "0"}, "verdicts.efficiency_reason"),
        ("verdicts", {"size_difference": (float_hex(-9.0),) * 3}, "verdicts.size_difference"),
    ],
)
def test_a_number_that_others_contradict_is_named_even_with_fresh_digests(
    group: str, change: dict, field: str, served_copy: Path
) -> None:
    rewrite(served_copy, **{group: change})
    assert field in moved(served_copy)


def test_counts_and_bands_are_computed_again(served_copy: Path) -> None:
    contract = ReliabilityContract.load(served_copy)
    chosen = contract.claims.evaluation[-1]
    for change, field in (
        ({"band": (0, chosen.rows)}, "band"),
        ({"covered": chosen.rows + 1}, "counts"),
        ({"size_sum": 0}, "counts"),
        ({"quantile": "inf"}, "quantile"),
    ):
        evaluation = (*contract.claims.evaluation[:-1], dataclasses.replace(chosen, **change))
        dataclasses.replace(contract, claims=dataclasses.replace(contract.claims, evaluation=evaluation)).save(
            served_copy
        )
        assert f"evaluation.{chosen.model}.{field}" in moved(served_copy)


def test_token_ids_are_encoded_again(served_copy: Path) -> None:
    labels = ReliabilityContract.load(served_copy).claims.task.labels
    other = dataclasses.replace(labels[0], token_ids=(*labels[0].token_ids, 1))
    rewrite(served_copy, task={"labels": (other, *labels[1:])})
    assert moved(served_copy) == {"task.labels"}


def test_rows_are_compared_and_roles_drawn_again(
    pruned: CPPResult, served_copy: Path, pool_file: Path, tmp_path: Path
) -> None:
    rows = datasets.load_dataset("json", data_files=str(pool_file), split="train")
    manifest = json.loads((served_copy / "split_manifest.json").read_text())
    changed = manifest["roles"]["conformal"]["indices"][3]

    def edit(row: dict, index: int) -> dict:
        return {"text": row["text"] + "!" if index == changed else row["text"]}

    rows.map(edit, with_indices=True).to_json(tmp_path / "edited.jsonl")
    found = moved(served_copy, dataset=str(tmp_path / "edited.jsonl"))
    assert found == {"manifest.dataset.digest", "manifest.roles.conformal"}

    # The same rows in another order, with a manifest and a contract that agree about it.
    for part in manifest["roles"]["conformal"].values():
        part.reverse()
    (served_copy / "split_manifest.json").write_text(json.dumps(manifest))
    contract = ReliabilityContract.load(served_copy)
    claims = dataclasses.replace(contract.claims, manifest_digest=digest(manifest))
    dataclasses.replace(contract, claims=claims).save(served_copy)
    assert moved(served_copy, dataset=str(pool_file)) == {"manifest.roles.conformal.indices"}


def test_a_row_in_two_roles_is_found(served_copy: Path, pool_file: Path, tmp_path: Path) -> None:
    """A manifest that somebody wrote by hand, over rows of which one was respelled."""
    from optimum_cpp.data import fingerprint, load_pool, text_digest
    from optimum_cpp.data.fingerprints import rows_digest

    rows = datasets.load_dataset("json", data_files=str(pool_file), split="train")
    manifest = json.loads((served_copy / "split_manifest.json").read_text())
    test, conformal = (manifest["roles"][role] for role in ("test", "conformal"))
    text = rows[conformal["indices"][0]]["text"].upper()
    rows = rows.map(
        lambda row, index: {"text": text if index == test["indices"][0] else row["text"]}, with_indices=True
    )
    rows.to_json(tmp_path / "twice.jsonl")
    labels = ReliabilityContract.load(served_copy).claims.labels
    pool = load_pool(str(tmp_path / "twice.jsonl"), label_names=labels)
    test["fingerprints"][0] = fingerprint(text, rows[test["indices"][0]]["label"])
    test["texts"][0] = text_digest(text)
    manifest["dataset"]["digest"] = rows_digest([pool.fingerprint(row) for row in range(len(pool))])
    (served_copy / "split_manifest.json").write_text(json.dumps(manifest))
    contract = ReliabilityContract.load(served_copy)
    dataclasses.replace(contract, claims=dataclasses.replace(contract.claims, manifest_digest=digest(manifest))).save(
        served_copy
    )
    assert moved(served_copy) == {"manifest.roles.texts"}
    found = moved(served_copy, dataset=str(tmp_path / "twice.jsonl"))
    assert {"manifest.roles.texts", "manifest.duplicates.found"} <= found


def rewrite_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """As somebody would who knows how to write the digest anew."""
    manifest = json.loads((folder / "split_manifest.json").read_text())
    change(manifest)
    (folder / "split_manifest.json").write_text(json.dumps(manifest))
    contract = ReliabilityContract.load(folder)
    claims = dataclasses.replace(contract.claims, manifest_digest=digest(manifest))
    dataclasses.replace(contract, claims=claims).save(folder)


@pytest.mark.parametrize("role", ["conformal", "test", "val_eval"])
def test_a_role_of_another_size_than_the_contract_speaks_of(served_copy: Path, role: str) -> None:
    def drop_last(manifest: dict[str, Any]) -> None:
        for values in manifest["roles"][role].values():
            values.pop()

    rewrite_manifest(served_copy, drop_last)
    assert moved(served_copy) == {f"manifest.roles.{role}.rows"}


@pytest.mark.parametrize("role", ["conformal", "test"])
def test_an_evaluated_text_that_was_trained_on_is_found(served_copy: Path, role: str) -> None:
    rewrite_manifest(served_copy, lambda m: m["ledger"].update(train=[m["roles"][role]["texts"][3]]))
    assert moved(served_copy) == {"manifest.ledger"}


def test_scores_are_computed_again_within_a_tolerance_that_a_record_cannot_widen(
    served_copy: Path, pool_file: Path
) -> None:
    contract = ReliabilityContract.load(served_copy)
    scores = contract.claims.calibration.scores
    # All scores move together, and the quantile with them: only the model can tell.
    for shift, holds in ((1e-5, True), (0.02, False)):
        values = np.array([from_hex(score) + shift for score in scores])
        quantile = float_hex(float(np.sort(values)[contract.claims.calibration.k - 1]))
        shifted = dataclasses.replace(
            contract.claims.calibration, scores=tuple(map(float_hex, values.tolist())), quantile=quantile
        )
        evaluation = tuple(
            item if item.model in ("dense", "base") else dataclasses.replace(item, quantile=quantile)
            for item in contract.claims.evaluation
        )
        claims = dataclasses.replace(contract.claims, calibration=shifted, evaluation=evaluation)
        ReliabilityContract(claims, contract.record | {"batch_versus_single": 1e9}).save(served_copy)
        assert moved(served_copy, dataset=str(pool_file)) == set()
        assert moved(served_copy, dataset=str(pool_file), rescore=60) == (set() if holds else {"calibration.scores"})


def test_a_recalibrated_folder_verifies_with_its_rows(
    pruned: CPPResult, new_rows: Callable[[int], datasets.Dataset], tmp_path: Path
) -> None:
    from optimum_cpp import CPPPruner
    from tiny_runs import small_config

    path = tmp_path / "new.jsonl"
    new_rows(200).to_json(path)
    pruner = CPPPruner.from_pretrained(pruned.directory)
    config = small_config(dataset=str(path), conformal_rows=80, test_rows="60")
    result = pruner.recalibrate(config=config, save_directory=tmp_path / "again")
    assert moved(result.directory, dataset=str(path), rescore=10) == set()


def test_links_out_of_the_folder_are_refused(served_copy: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    shutil.move(served_copy / "tokenizer.json", outside)
    (served_copy / "tokenizer.json").symlink_to(outside)
    assert moved(served_copy) == {"model.files.tokenizer.json"}
    # A snapshot in the cache of the Hub links to the blobs beside it.
    cache = tmp_path / "models--me--name"
    shutil.copytree(served_copy, cache / "snapshots" / "abc", symlinks=True)
    (cache / "blobs").mkdir()
    link = cache / "snapshots" / "abc" / "tokenizer.json"
    link.unlink()
    shutil.copy(outside, cache / "blobs" / "1")
    link.symlink_to("../../blobs/1")
    assert moved(cache / "snapshots" / "abc") == set()


def test_what_cannot_be_asked(pruned: CPPResult, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rescore"):
        verify(pruned.directory, rescore=3)
    with pytest.raises(ContractViolation, match=r"reliability_contract\.json"):
        verify(tmp_path)
