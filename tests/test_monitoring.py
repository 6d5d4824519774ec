"""Recent rows through the served model."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from optimum_cpp import CPPModelForCausalLM, monitor
from optimum_cpp.errors import ContractViolation, DataError, UsageError
from optimum_cpp.modeling import CPPResult
from tiny_models import LABELS

Rows = Callable[[int], datasets.Dataset]


@pytest.fixture(scope="module")
def model(pruned: CPPResult) -> CPPModelForCausalLM:
    return CPPModelForCausalLM.from_pretrained(pruned.directory)


def test_rows_of_the_same_kind(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    rows = new_rows(60)
    report = monitor(model, rows["text"], rows["label"])
    assert not report.alarm and report.labelled
    assert report.rows + report.repeated == 60 and report.calibration_rows == 60
    assert report.rows == len({text.casefold() for text in rows["text"]})
    predictions = model.predict_set(rows["text"])
    if not report.repeated:
        assert report.covered == sum(y in p["set"] for y, p in zip(rows["label"], predictions, strict=True))


def test_labels_may_be_names_or_numbers(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    rows = new_rows(40)
    numbers = [LABELS.index(name) for name in rows["label"]]
    assert monitor(model, rows["text"], numbers) == monitor(model, rows["text"], rows["label"])
    assert monitor(model, dataset=rows) == monitor(model, rows["text"], rows["label"])


def test_a_folder_serves_as_well(pruned: CPPResult, model: CPPModelForCausalLM, new_rows: Rows) -> None:
    texts = new_rows(30)["text"]
    assert monitor(pruned.directory, texts) == monitor(model, texts, [None] * 30)


def test_wrong_labels_are_found(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    """Every row gets the label that the model thinks least likely."""
    texts = new_rows(60)["text"]
    worst = [int(row.argmax()) for row in model.scores(texts)]
    report = monitor(model, texts, worst)
    assert {"scores", "coverage"} <= {test.name for test in report.tests if test.alarm}


def test_other_texts_are_found_without_labels(model: CPPModelForCausalLM) -> None:
    """Single words that the corpus does not hold."""
    generator = random.Random(0)
    texts = ["".join(generator.choices("zxqj", k=8)) for _ in range(80)]
    report = monitor(model, texts)
    assert not report.labelled
    assert report.alarm


def test_repeated_texts_are_left_out(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    texts = new_rows(20)["text"]
    distinct = monitor(model, texts)
    again = monitor(model, [*texts, texts[0].upper(), f"  {texts[1]} "])
    assert again.repeated == distinct.repeated + 2 and again.tests == distinct.tests


def test_used_rows_are_refused(model: CPPModelForCausalLM, pool_file: Path, new_rows: Rows) -> None:
    used = datasets.load_dataset("json", data_files=str(pool_file), split="train")
    with pytest.raises(DataError, match="conformal"):
        monitor(model, used["text"], used["label"])
    with pytest.raises(DataError, match="conformal"):
        monitor(model, used["text"])


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ([], None, "at least one row"),
        (["garden", "film"], ["film"], "a label for each of the 2 texts"),
        (["garden", "film"], ["film", None], "all rows to have a label or none"),
        (["garden"], ["fern"], "fern"),
        (["garden"], [len(LABELS)], "not one of"),
        (["garden"], [True], "not one of"),
        (["  "], None, "text 0 is empty"),
        ([7], None, "valid string"),
    ],
)
def test_bad_rows_are_named(model: CPPModelForCausalLM, texts: Any, labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        monitor(model, texts, labels)


def test_one_row_is_compared(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    rows = new_rows(1)
    assert monitor(model, rows["text"], rows["label"]).rows == 1


def test_bad_arguments_are_named(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    rows = new_rows(5)
    with pytest.raises(UsageError, match="level"):
        monitor(model, rows["text"], level="1.5")
    with pytest.raises(UsageError, match="either"):
        monitor(model)
    with pytest.raises(UsageError, match="either"):
        monitor(model, rows["text"], dataset=rows)


def test_a_model_that_moved_is_not_monitored(served_copy: Path, new_rows: Rows) -> None:
    moved = CPPModelForCausalLM.from_pretrained(served_copy)
    next(iter(moved.model.parameters())).data[0, 0] += 1
    with pytest.raises(ContractViolation, match="weights"):
        monitor(moved, new_rows(5)["text"])
