import json
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest

from optimum_cpp import CPPModelForCausalLM, CPPModelForSequenceClassification, recalibrate
from optimum_cpp.contract.canonical import from_hex
from optimum_cpp.errors import ContractViolation, DataError, UsageError
from optimum_cpp.modeling import CPPResult
from tiny_models import LABELS, byte_tokenizer, tiny_model
from tiny_runs import labelled_rows, small_config


def test_a_fresh_quantile_names_its_predecessor(
    pruned: CPPResult, new_rows: Callable[[int], datasets.Dataset], tmp_path: Path
) -> None:
    rows = new_rows(120)
    config = small_config(alpha="0.3", conformal_rows=70, test_rows="50", dataset=None)
    result = recalibrate(pruned.directory, config=config, dataset=rows, save_directory=tmp_path / "new")
    old, new = pruned.contract.claims, result.contract.claims
    assert new.predecessor == pruned.contract.digest
    assert (new.task, new.score, new.pruning) == (old.task, old.score, old.pruning)
    assert new.model.files == old.model.files and new.model.matrices == old.model.matrices
    assert (new.calibration.alpha, new.calibration.n, new.calibration.k) == ("0.3", 70, 50)
    # The quantile again, from the old model's own answers on the new conformal rows.
    manifest = json.loads((tmp_path / "new" / "split_manifest.json").read_text())
    indices = manifest["roles"]["conformal"]["indices"]
    scores = pruned.model.scores([rows["text"][i] for i in indices])
    true = [scores[row, LABELS.index(rows["label"][i])] for row, i in enumerate(indices)]
    np.testing.assert_allclose([from_hex(value) for value in new.calibration.scores], true, atol=1e-5)
    assert new.quantile == pytest.approx(sorted(true)[49], abs=1e-5)
    # What the first run used stays known.
    assert len(manifest["ledger"]["conformal"]) == 60 and len(manifest["ledger"]["prune"]) == 16
    assert CPPModelForCausalLM.from_pretrained(tmp_path / "new").predict_set("the sea")


def test_rows_that_were_used_do_not_calibrate_again(pruned: CPPResult, pool_file: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"256 of the 300 rows"):
        recalibrate(pruned.directory, config=small_config(dataset=str(pool_file)), save_directory=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_was_changed_on_purpose_gets_a_new_contract(
    served_copy: Path, new_rows: Callable[[int], datasets.Dataset], tmp_path: Path
) -> None:
    model = CPPModelForCausalLM.from_pretrained(served_copy).model
    model.lm_head.weight.data.mul_(1.5)
    model.save_pretrained(served_copy)
    config = small_config(conformal_rows=60, test_rows="0")
    result = recalibrate(served_copy, config=config, dataset=new_rows(60), save_directory=tmp_path / "new")
    assert CPPModelForCausalLM.from_pretrained(tmp_path / "new").contract.digest == result.contract.digest


def test_claims_about_other_weights_are_not_carried_over(
    served_copy: Path, new_rows: Callable[[int], datasets.Dataset], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = CPPModelForCausalLM.from_pretrained(served_copy).model
    model.lm_head.weight.data.mul_(1.5)
    model.save_pretrained(served_copy)
    config = small_config(conformal_rows=60, test_rows="0")
    claims = recalibrate(
        served_copy, config=config, dataset=new_rows(60), save_directory=tmp_path / "n"
    ).contract.claims
    assert claims.pruning is None and claims.selection is None and claims.predecessor is not None
    assert "weights have changed" in caplog.text


@pytest.mark.parametrize("damage", ["gone", "edited"])
def test_without_its_manifest_nobody_knows_what_rows_were_used(
    damage: str, served_copy: Path, pool_file: Path, tmp_path: Path
) -> None:
    path = served_copy / "split_manifest.json"
    if damage == "gone":
        path.unlink()
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 5}))
    config = small_config(dataset=str(pool_file), conformal_rows=50, test_rows="50")
    with pytest.raises(ContractViolation, match="manifest"):
        recalibrate(served_copy, config=config, save_directory=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("score", ["prior_nll", "nll"])
def test_a_plain_model_is_frozen_as_it_is(
    score: str, dense_folder: Path, new_rows: Callable[[int], datasets.Dataset], tmp_path: Path
) -> None:
    config = small_config(val_rows=20, conformal_rows=60, test_rows="40", score=score)
    result = recalibrate(dense_folder, config=config, dataset=new_rows(120), save_directory=tmp_path / "served")
    claims = result.contract.claims
    assert claims.predecessor is None and claims.pruning is None and claims.selection is None
    assert len(claims.score.prior) == (len(LABELS) if score == "prior_nll" else 0)
    assert claims.calibration.n == 60 and claims.evaluation[0].rows == 40
    assert CPPModelForCausalLM.from_pretrained(tmp_path / "served").predict_set("the sea")


def test_an_encoder(tmp_path: Path) -> None:
    tiny_model("distilbert").save_pretrained(tmp_path / "dense")
    byte_tokenizer(opening="<s>", closing="</s>").save_pretrained(tmp_path / "dense")
    config = small_config(val_rows=20, conformal_rows=60, test_rows="40", label_names=LABELS[:4], prompt=None)
    rows = labelled_rows(120, seed=8, labels=LABELS[:4])
    recalibrate(tmp_path / "dense", config=config, dataset=rows, save_directory=tmp_path / "served")
    model = CPPModelForSequenceClassification.from_pretrained(tmp_path / "served")
    assert model.contract.claims.score.name == "nll"
    prediction = model.predict_set("the sea")[0]
    assert np.exp(-np.array(list(prediction["scores"].values()))).sum() == pytest.approx(1, abs=1e-6)


def test_splits_for_single_roles_are_refused(pruned: CPPResult, pool_file: Path, tmp_path: Path) -> None:
    config = small_config(dataset=str(pool_file), split=("prune=train", "val=train", "conformal=train", "test=train"))
    with pytest.raises(UsageError, match="split"):
        recalibrate(pruned.directory, config=config, save_directory=tmp_path / "new")
