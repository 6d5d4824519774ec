"""The whole algorithm on a tiny model, recomputed from its output folder by other means."""

import dataclasses
import json
import logging
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import optimum_cpp.algorithm as algorithm
from optimum_cpp.contract.canonical import from_hex
from optimum_cpp.errors import ConformalRoleLocked
from optimum_cpp.loading import weights_digest
from optimum_cpp.modeling import CPPResult
from optimum_cpp.pruner import CPPPruner, get_data_roles
from tiny_models import LABELS, PROMPT, VERBALIZERS
from tiny_runs import labelled_rows, small_config


def _plain_scores(folder: Path, texts: list[str]) -> np.ndarray:
    """log p(y | x) by one unpadded pass for each label, in float64, with nothing of this package."""
    model = AutoModelForCausalLM.from_pretrained(folder).double()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    words = [" " + label for label in LABELS]
    assert tuple(words) == VERBALIZERS
    scores = np.zeros((len(texts), len(words)))
    for row, text in enumerate(texts):
        prompt = PROMPT.replace("{text}", text)
        start = len(tokenizer(prompt)["input_ids"])
        for column, word in enumerate(words):
            ids = tokenizer(prompt + word)["input_ids"]
            with torch.no_grad():
                log_p = model(torch.tensor([ids])).logits[0].log_softmax(-1)
            scores[row, column] = sum(float(log_p[i - 1, ids[i]]) for i in range(start, len(ids)))
    return scores


def _prior_nll(log_p: np.ndarray, prior: np.ndarray) -> np.ndarray:
    shifted = log_p - prior
    return np.log(np.exp(shifted).sum(1, keepdims=True)) - shifted


def _rows(pool_file: Path, manifest: dict, role: str) -> tuple[list[str], np.ndarray]:
    pool = [json.loads(line) for line in pool_file.read_text().splitlines()]
    rows = [pool[index] for index in manifest["roles"][role]["indices"]]
    return [row["text"] for row in rows], np.array([LABELS.index(row["label"]) for row in rows])


def test_the_contract_says_what_an_independent_computation_finds(pruned: CPPResult, pool_file: Path) -> None:
    folder, claims = pruned.directory, pruned.contract.claims
    manifest = json.loads((folder / "split_manifest.json").read_text())
    prior = _plain_scores(folder, _rows(pool_file, manifest, "val_cal")[0]).mean(0)
    np.testing.assert_allclose([from_hex(value) for value in claims.score.prior], prior, atol=1e-4)

    texts, labels = _rows(pool_file, manifest, "conformal")
    scores = _prior_nll(_plain_scores(folder, texts), prior)[np.arange(60), labels]
    np.testing.assert_allclose([from_hex(value) for value in claims.calibration.scores], scores, atol=1e-4)
    rank = math.ceil(61 * Fraction(8, 10))
    assert (claims.calibration.n, claims.calibration.k) == (60, rank)
    assert claims.quantile == pytest.approx(sorted(scores)[rank - 1], abs=1e-4)

    texts, labels = _rows(pool_file, manifest, "test")
    scores = _prior_nll(_plain_scores(folder, texts), prior)
    sets = scores <= claims.quantile
    chosen = next(claim for claim in claims.evaluation if claim.model == "chosen")
    assert chosen.rows == 100
    # A score within rounding of the quantile may fall on either side.
    slack = int((np.abs(scores - claims.quantile) < 2e-4).sum())
    assert abs(chosen.covered - sets[np.arange(100), labels].sum()) <= slack
    assert abs(chosen.size_sum - sets.sum()) <= slack
    assert chosen.correct == (scores.argmin(1) == labels).sum()


def test_each_row_of_each_matrix_has_exactly_half_its_weights(pruned: CPPResult) -> None:
    model = AutoModelForCausalLM.from_pretrained(pruned.directory)
    assert len(pruned.contract.claims.model.matrices) == 14
    for name, claim in pruned.contract.claims.model.matrices.items():
        weight = model.get_submodule(name).weight
        assert ((weight == 0).sum(1) == weight.shape[1] // 2).all(), name
        assert (claim.size, claim.zeros) == (weight.numel(), weight.numel() // 2)
    for name, weight in model.named_parameters():
        if name.removesuffix(".weight") not in pruned.contract.claims.model.matrices:
            assert (weight != 0).all(), name


def test_the_conformal_role_stays_shut_until_the_freeze(
    dense_folder: Path, pool_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(dataset=str(pool_file))
    roles = get_data_roles(config=config)
    tried = []
    for step in ("measure_saliency", "choose", "freeze"):
        original = getattr(algorithm, step)

        def watched(*args, _original=original, _step=step, **kwargs):
            with pytest.raises(ConformalRoleLocked):
                _ = roles.conformal
            tried.append(_step)
            return _original(*args, **kwargs)

        monkeypatch.setattr(algorithm, step, watched)
    result = CPPPruner.from_pretrained(dense_folder).prune(config=config, roles=roles, save_directory=tmp_path / "out")
    assert tried == ["measure_saliency", "choose", "freeze"]
    assert roles.frozen_digest == result.model.frozen.digest
    assert len(roles.conformal) == 60


def test_roles_that_calibrated_one_model_do_not_calibrate_another(
    dense_folder: Path, pool_file: Path, tmp_path: Path
) -> None:
    config = small_config(dataset=str(pool_file))
    roles = get_data_roles(config=config)
    pruner = CPPPruner.from_pretrained(dense_folder)
    pruner.prune(config=config, roles=roles, save_directory=tmp_path / "one")
    with pytest.raises(ConformalRoleLocked):
        pruner.prune(config=config.replace(sparsity="0.7"), roles=roles, save_directory=tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_the_same_inputs_give_the_same_claims_and_leave_the_dense_model_as_it_was(
    dense_folder: Path, pool_file: Path, tmp_path: Path, pruned: CPPResult
) -> None:
    pruner = CPPPruner.from_pretrained(dense_folder)
    before = weights_digest(pruner.loaded.model)
    again = pruner.prune(config=small_config(dataset=str(pool_file)), save_directory=tmp_path / "again")
    assert again.contract.claims == pruned.contract.claims
    assert again.contract.digest == pruned.contract.digest
    assert weights_digest(pruner.loaded.model) == before != again.contract.claims.model.weights_digest


def test_references_and_the_choice_stand_in_the_results(pruned: CPPResult) -> None:
    rows = {row.model: row for row in pruned.results.test}
    chosen = pruned.contract.claims.selection.lam
    assert set(rows) == ({"dense", "chosen"} if Fraction(chosen) == 0 else {"dense", "base", "chosen"})
    assert rows["chosen"].lam == chosen and rows["dense"].lam is None
    assert [candidate.lam for candidate in pruned.contract.claims.selection.candidates] == ["0", "0.3"]
    assert pruned.results.achieved_sparsity == 0.5
    assert pruned.contract.claims.verdicts.validity in ("holds", "fails", "undecided")


def test_lambda_zero_alone_needs_no_gradients(
    dense_folder: Path, pool_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm, "measure_saliency", lambda *a, **k: pytest.fail("saliency was computed"))
    config = small_config(dataset=str(pool_file), lambda_grid=("0",), base_pruner="magnitude", test_rows="0")
    result = CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    assert result.results.test == () and result.contract.claims.verdicts is None
    assert result.contract.claims.selection.lam == "0"


@pytest.mark.parametrize("base", ["sparsegpt", "random"])
def test_every_base_pruner_runs_the_whole_way(base: str, dense_folder: Path, pool_file: Path, tmp_path: Path) -> None:
    config = small_config(dataset=str(pool_file), base_pruner=base, temperature="fit", score="label_nll")
    result = CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    assert result.results.achieved_sparsity == 0.5
    assert result.contract.claims.score.prior == ()
    assert from_hex(result.contract.claims.score.temperature) != 1.0
    assert result.model.predict_set("the sea")[0]["label"] in LABELS


def test_learn_then_test_is_the_other_rule(dense_folder: Path, pool_file: Path, tmp_path: Path) -> None:
    config = small_config(dataset=str(pool_file), selection="learn_then_test", ltt_risk="0.05", test_rows="0")
    result = CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    assert result.contract.claims.selection.rule == "learn_then_test"
    assert result.contract.claims.selection.lam == "0"  # no random model has an error below 5 %


def test_a_sparse_model_is_told_so(pruned: CPPResult, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = labelled_rows(300, seed=5)
    config = small_config(lambda_grid=("0",), test_rows="0", sparsity="0.6")
    with caplog.at_level(logging.WARNING, logger="optimum_cpp"):
        pruner = CPPPruner.from_pretrained(pruned.directory)
        result = pruner.prune(
            config=config, roles=pruner.get_data_roles(rows, config=config), save_directory=tmp_path / "o"
        )
    assert "already sparse" in caplog.text and "50.0 %" in caplog.text
    assert result.results.achieved_sparsity == pytest.approx(0.6, abs=0.02)
    # The rows that the first run used travel on in the ledger.
    manifest = json.loads((result.directory / "split_manifest.json").read_text())
    assert len(manifest["ledger"]["conformal"]) == 60


def test_bfloat16_and_an_encoder(pool_file: Path, tmp_path: Path) -> None:
    from tiny_models import byte_tokenizer, tiny_model

    model = tiny_model("bert", dtype=torch.bfloat16)
    model.config.id2label = dict(enumerate(LABELS[:4]))
    model.config.label2id = {name: i for i, name in enumerate(LABELS[:4])}
    model.save_pretrained(tmp_path / "dense")
    byte_tokenizer(opening="<s>", closing="</s>").save_pretrained(tmp_path / "dense")
    config = dataclasses.replace(small_config(base_pruner="magnitude"), prompt=None, label_names=())
    rows = labelled_rows(300, seed=3, labels=LABELS[:4])
    pruner = CPPPruner.from_pretrained(tmp_path / "dense")
    result = pruner.prune(
        config=config, roles=pruner.get_data_roles(rows, config=config), save_directory=tmp_path / "o"
    )
    assert result.contract.claims.model.dtype == "bfloat16"
    assert result.contract.claims.score.name == "nll" and result.contract.claims.task.kind == "encoder"
    assert result.contract.record["batch_versus_single"] >= 0
