from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest

from optimum_cpp import CPPModelForCausalLM, evaluate
from optimum_cpp.data import SplitManifest
from optimum_cpp.errors import ContractViolation, DataError
from optimum_cpp.filenames import MANIFEST_NAME
from optimum_cpp.modeling import CPPResult
from tiny_models import LABELS
from tiny_runs import small_config


def test_the_test_role_gives_the_contracts_own_counts(pruned: CPPResult) -> None:
    row = evaluate(CPPModelForCausalLM.from_pretrained(pruned.directory))
    chosen = next(claim for claim in pruned.contract.claims.evaluation if claim.model == "chosen")
    assert (row.counts.rows, row.counts.covered, row.counts.size_sum) == (100, chosen.covered, chosen.size_sum)
    assert row.band == chosen.band and row.model == "served"


def test_used_rows_are_refused_and_counted(pruned: CPPResult, pool_file: Path) -> None:
    model = CPPModelForCausalLM.from_pretrained(pruned.directory)
    with pytest.raises(DataError, match=r"256 of the 300 rows .*conformal: 60"):
        evaluate(model, dataset=str(pool_file))


def test_rows_that_the_model_has_not_seen(pruned: CPPResult, new_rows: Callable[[int], datasets.Dataset]) -> None:
    rows = new_rows(40)
    row = evaluate(CPPModelForCausalLM.from_pretrained(pruned.directory), dataset=rows, config=small_config())
    predictions = pruned.model.predict_set(rows["text"])
    assert row.counts.rows == 40
    assert row.counts.covered == sum(y in p["set"] for y, p in zip(rows["label"], predictions, strict=True))
    assert row.counts.size_sum == sum(len(p["set"]) for p in predictions)
    assert row.counts.correct == sum(y == p["label"] for y, p in zip(rows["label"], predictions, strict=True))
    sizes = np.bincount([len(p["set"]) for p in predictions], minlength=len(LABELS) + 1)
    assert row.counts.size_histogram == tuple(sizes.tolist())


def test_other_label_order_or_unknown_labels(pruned: CPPResult, new_rows: Callable[[int], datasets.Dataset]) -> None:
    model = CPPModelForCausalLM.from_pretrained(pruned.directory)
    rows = new_rows(30)
    turned = rows.cast_column("label", datasets.ClassLabel(names=list(reversed(LABELS))))
    assert evaluate(model, dataset=turned).counts == evaluate(model, dataset=rows).counts
    with pytest.raises(DataError, match="fern"):
        evaluate(model, dataset=datasets.Dataset.from_dict({"text": ["a", "b"], "label": ["fern", "film"]}))


def test_a_contract_that_does_not_hold_is_not_evaluated(served_copy: Path) -> None:
    model = CPPModelForCausalLM.from_pretrained(served_copy)
    next(iter(model.model.parameters())).data[0, 0] += 1
    with pytest.raises(ContractViolation, match="weights"):
        evaluate(model)


def test_a_used_text_is_refused_however_it_is_spelled_and_labelled(pruned: CPPResult, pool_file: Path) -> None:
    used = datasets.load_dataset("json", data_files=str(pool_file), split="train")
    index = SplitManifest.load(pruned.directory / MANIFEST_NAME).roles["conformal"].indices[0]
    other = next(name for name in LABELS if name != used["label"][index])
    respelled = datasets.Dataset.from_dict({"text": [f"  {used['text'][index].upper()} "], "label": [other]})
    with pytest.raises(DataError, match=r"1 of the 1 rows were already used \(conformal: 1\)"):
        evaluate(CPPModelForCausalLM.from_pretrained(pruned.directory), dataset=respelled)
