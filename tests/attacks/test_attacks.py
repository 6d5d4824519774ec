"""Attacks on a folder, one by one: what somebody changes, and the field that the check then names.

Each attack is a function of a folder that may be damaged. Some rewrite the contract's digests as well, as
somebody would who knows the format; the check then finds what contradicts the edit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import load_file, save_file

from optimum_cpp import CPPModelForCausalLM, ReliabilityContract
from optimum_cpp.contract.canonical import digest, file_digest
from optimum_cpp.contract.claims import FileClaim
from optimum_cpp.errors import ContractViolation, CPPError
from optimum_cpp.filenames import CONTRACT_NAME, MANIFEST_NAME
from optimum_cpp.verification import verify

Attack = Callable[[Path], None]


def edit_json(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def rewrite(folder: Path, **groups: dict[str, Any]) -> None:
    """The contract with some claims replaced and with the digests that belong to them."""
    contract = ReliabilityContract.load(folder)
    parts = {name: dataclasses.replace(getattr(contract.claims, name), **new) for name, new in groups.items()}
    dataclasses.replace(contract, claims=dataclasses.replace(contract.claims, **parts)).save(folder)


def claim_file(folder: Path, name: str) -> None:
    """Claim a file as it is now."""
    files = ReliabilityContract.load(folder).claims.model.files
    claim = FileClaim(file_digest(folder / name), (folder / name).stat().st_size)
    rewrite(folder, model={"files": files | {name: claim}})


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


# Attacks on weights.


def truncate_a_shard(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-1])


def swap_two_matrices(folder: Path) -> None:
    def swap(tensors: dict[str, torch.Tensor]) -> None:
        one, two = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"
        tensors[one], tensors[two] = tensors[two], tensors[one]

    change_weights(folder, swap)


def swap_two_matrices_and_claim_the_file(folder: Path) -> None:
    swap_two_matrices(folder)
    claim_file(folder, "model.safetensors")


def revive_a_weight_and_claim_the_file(folder: Path) -> None:
    def revive(tensors: dict[str, torch.Tensor]) -> None:
        weight = tensors["model.layers.0.self_attn.q_proj.weight"]
        weight.view(-1)[int((weight.view(-1) == 0).nonzero()[0])] = 1e-6

    change_weights(folder, revive)
    claim_file(folder, "model.safetensors")


def add_a_shard(folder: Path) -> None:
    save_file({"x": torch.zeros(1)}, folder / "model-00002-of-00002.safetensors")


# Attacks on the way a text becomes scores.


def change_a_verbalizer(folder: Path) -> None:
    labels = ReliabilityContract.load(folder).claims.task.labels
    rewrite(folder, task={"labels": (dataclasses.replace(labels[0], verbalizer=" other"), *labels[1:])})


def change_a_token_id(folder: Path) -> None:
    labels = ReliabilityContract.load(folder).claims.task.labels
    ids = (*labels[0].token_ids[:-1], labels[0].token_ids[-1] + 1)
    rewrite(folder, task={"labels": (dataclasses.replace(labels[0], token_ids=ids), *labels[1:])})


def turn_the_labels_round(folder: Path) -> None:
    edit_json(folder / CONTRACT_NAME, lambda c: c["claims"]["task"]["labels"].reverse())


def add_a_space_to_the_prompt(folder: Path) -> None:
    edit_json(folder / CONTRACT_NAME, lambda c: c["claims"]["task"].update(prompt=c["claims"]["task"]["prompt"] + " "))


def switch_the_normaliser(folder: Path) -> None:
    edit_json(folder / "tokenizer.json", lambda t: t.update(normalizer={"type": "Lowercase"}))


# Attacks on the quantile.


def lower_the_quantile(folder: Path) -> None:
    scores = sorted(map(float.fromhex, ReliabilityContract.load(folder).claims.calibration.scores))
    rewrite(folder, calibration={"quantile": scores[5].hex()})


def claim_another_rank(folder: Path) -> None:
    rewrite(folder, calibration={"k": ReliabilityContract.load(folder).claims.calibration.k - 1})


def claim_another_level(folder: Path) -> None:
    rewrite(folder, calibration={"alpha": "0.5"})


def leave_out_the_largest_score(folder: Path) -> None:
    claim = ReliabilityContract.load(folder).claims.calibration
    worst = max(range(claim.n), key=lambda row: float.fromhex(claim.scores[row]))
    shorter = {
        name: tuple(value for row, value in enumerate(getattr(claim, name)) if row != worst)
        for name in ("scores", "top_probabilities", "set_sizes")
    }
    rewrite(folder, calibration={**shorter, "n": claim.n - 1})


# Attacks on files and on the reader.


def link_out_of_the_folder(folder: Path) -> None:
    outside = folder.parent / "outside.json"
    (folder / "config.json").rename(outside)
    (folder / "config.json").symlink_to(outside)


def climb_out_of_the_folder(folder: Path) -> None:
    edit_json(
        folder / CONTRACT_NAME,
        lambda c: c["claims"]["model"]["files"].update({"../config.json": {"sha256": "sha256:" + "0" * 64, "size": 1}}),
    )


def say_a_key_twice(folder: Path) -> None:
    text = (folder / CONTRACT_NAME).read_text()
    (folder / CONTRACT_NAME).write_text(text.replace('"claims":{', '"claims":{"schema":1,', 1))


def write_nan(folder: Path) -> None:
    edit_json(folder / CONTRACT_NAME, lambda c: c["record"].update(batch_versus_single=float("nan")))


def write_a_gigabyte(folder: Path) -> None:
    with (folder / CONTRACT_NAME).open("r+b") as file:
        file.truncate(2**30)


def nest_deeply(folder: Path) -> None:
    (folder / CONTRACT_NAME).write_bytes(b"[" * 10**6)


def come_from_the_future(folder: Path) -> None:
    edit_json(folder / CONTRACT_NAME, lambda c: c["claims"].update(schema=2))


# Attacks on the manifest.


def exchange_a_conformal_row(folder: Path) -> None:
    def exchange(manifest: dict[str, Any]) -> None:
        for values in (manifest["roles"]["conformal"], manifest["roles"]["test"]):
            values["indices"].sort()

    edit_json(folder / MANIFEST_NAME, exchange)


def put_a_row_into_two_roles(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST_NAME).read_text())
    for name, values in manifest["roles"]["conformal"].items():
        values[0] = manifest["roles"]["test"][name][0] if name != "indices" else values[0]
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))
    contract = ReliabilityContract.load(folder)
    claims = dataclasses.replace(contract.claims, manifest_digest=digest(manifest))
    dataclasses.replace(contract, claims=claims).save(folder)


@pytest.mark.parametrize(
    ("attack", "named"),
    [
        (truncate_a_shard, "model.files.model.safetensors"),
        (swap_two_matrices, "model.files.model.safetensors"),
        (swap_two_matrices_and_claim_the_file, "model.matrices.model.layers.0.self_attn.q_proj"),
        (revive_a_weight_and_claim_the_file, "model.matrices.model.layers.0.self_attn.q_proj"),
        (add_a_shard, "model.files.model-00002-of-00002.safetensors"),
        (change_a_verbalizer, "task.labels"),
        (change_a_token_id, "task.labels"),
        (turn_the_labels_round, "task.labels"),
        (add_a_space_to_the_prompt, "task.prompt"),
        (switch_the_normaliser, "model.files.tokenizer.json"),
        (lower_the_quantile, "calibration.quantile"),
        (claim_another_rank, "calibration.k"),
        (claim_another_level, "calibration.k"),
        (leave_out_the_largest_score, "manifest.roles.conformal.rows"),
        (link_out_of_the_folder, "model.files.config.json"),
        (climb_out_of_the_folder, "model.files"),
        (say_a_key_twice, "schema"),
        (write_nan, "NaN"),
        (write_a_gigabyte, "at most"),
        (nest_deeply, "nested"),
        (come_from_the_future, "schema"),
        (exchange_a_conformal_row, "manifest_digest"),
        (put_a_row_into_two_roles, "manifest.roles.texts"),
    ],
)
def test_the_check_names_what_was_attacked(attack: Attack, named: str, served_copy: Path) -> None:
    assert verify(served_copy).holds
    attack(served_copy)
    try:
        found = [finding.field for finding in verify(served_copy).findings if not finding.holds]
    except ContractViolation as error:
        found = [str(error)]
    assert any(named in field for field in found), found


@pytest.mark.parametrize(
    "attack",
    [
        truncate_a_shard, swap_two_matrices, revive_a_weight_and_claim_the_file, add_a_shard, change_a_verbalizer,
        change_a_token_id, add_a_space_to_the_prompt, switch_the_normaliser, lower_the_quantile, claim_another_rank,
        link_out_of_the_folder, write_nan, come_from_the_future, exchange_a_conformal_row,
    ],
)  # fmt: skip
def test_the_model_does_not_serve(attack: Attack, served_copy: Path) -> None:
    attack(served_copy)
    with pytest.raises(ContractViolation):
        CPPModelForCausalLM.from_pretrained(served_copy)


# Attacks on the rows themselves, which somebody who has the data finds.


def respell(rows: datasets.Dataset, one: int, two: int) -> datasets.Dataset:
    """Row `two` becomes row `one` in capitals."""
    text = rows[one]["text"].upper()
    return rows.map(lambda row, index: {"text": text if index == two else row["text"]}, with_indices=True)


def nearly_repeat(rows: datasets.Dataset, one: int, two: int) -> datasets.Dataset:
    """Both rows get one long text, but for its last word."""
    words = [f"w{number}" for number in range(30)]
    texts = {one: " ".join([*words, "x"]), two: " ".join([*words, "y"])}
    return rows.map(lambda row, index: {"text": texts.get(index, row["text"])}, with_indices=True)


def contradict(rows: datasets.Dataset, one: int, two: int) -> datasets.Dataset:
    """Row `two` has the text of row `one` and another label."""
    other = next(label for label in rows["label"] if label != rows[one]["label"])
    value = {"text": rows[one]["text"], "label": other}
    return rows.map(lambda row, index: value if index == two else row, with_indices=True)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (respell, "manifest.duplicates.found"),
        (nearly_repeat, "manifest.duplicates.near"),
        (contradict, "manifest.duplicates.contradictory"),
    ],
)
def test_rows_that_repeat_each_other_are_found_even_where_all_digests_agree(
    change: Callable[..., datasets.Dataset], named: str, served_copy: Path, pool_file: Path, tmp_path: Path
) -> None:
    from optimum_cpp.data import RoleRows, load_pool

    manifest = json.loads((served_copy / MANIFEST_NAME).read_text())
    one, two = (manifest["roles"][role]["indices"][0] for role in ("conformal", "test"))
    rows = datasets.load_dataset("json", data_files=str(pool_file), split="train")
    change(rows, one, two).to_json(tmp_path / "rows.jsonl")
    contract = ReliabilityContract.load(served_copy)
    pool = load_pool(str(tmp_path / "rows.jsonl"), label_names=contract.claims.labels)
    manifest["dataset"]["digest"] = pool.source.digest
    for role in manifest["roles"].values():
        found = RoleRows.of(pool, role["indices"])
        role.update(fingerprints=list(found.fingerprints), texts=list(found.texts))
    (served_copy / MANIFEST_NAME).write_text(json.dumps(manifest))
    claims = dataclasses.replace(contract.claims, manifest_digest=digest(manifest))
    dataclasses.replace(contract, claims=claims).save(served_copy)
    found = verify(served_copy, dataset=str(tmp_path / "rows.jsonl"))
    assert named in {finding.field for finding in found.findings if not finding.holds}


class Payload:
    """Runs code when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return open, (str(self.marker), "w")


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "training_args.bin", "modeling_evil.py", "handler.py"]
)
def test_no_code_of_the_folder_runs(name: str, served_copy: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    if name.endswith(".py"):
        (served_copy / name).write_text(f"open({str(marker)!r}, 'w')\nclass Evil: pass\n")
        edit_json(
            served_copy / "config.json",
            lambda c: c.update(auto_map={"AutoModelForCausalLM": f"{name.removesuffix('.py')}.Evil"}),
        )
        claim_file(served_copy, "config.json")
    else:
        (served_copy / name).write_bytes(pickle.dumps(Payload(marker)))
        (served_copy / "model.safetensors").rename(tmp_path / "hidden")
    for run in (verify, CPPModelForCausalLM.from_pretrained):
        with contextlib.suppress(CPPError):
            run(served_copy)
    assert not marker.exists()


def test_a_payload_would_have_run(tmp_path: Path) -> None:
    """The attack above is one."""
    pickle.loads(pickle.dumps(Payload(tmp_path / "ran"))).close()
    assert (tmp_path / "ran").exists()


def test_canonical_bytes_are_what_is_hashed(served_copy: Path) -> None:
    """White space in the file changes nothing: the claims are hashed, not the file."""
    whole = json.loads((served_copy / CONTRACT_NAME).read_text())
    (served_copy / CONTRACT_NAME).write_text(json.dumps(whole, indent=3))
    assert verify(served_copy).digest == digest(whole["claims"])
