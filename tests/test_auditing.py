"""Groups of a served model's rows, against plain counts and scipy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from scipy.stats import beta

from optimum_cpp import CPPModelForCausalLM, audit, evaluate
from optimum_cpp.errors import DataError
from optimum_cpp.modeling import CPPResult
from tiny_models import LABELS

Rows = Callable[[int], datasets.Dataset]


@pytest.fixture(scope="module")
def model(pruned: CPPResult) -> CPPModelForCausalLM:
    return CPPModelForCausalLM.from_pretrained(pruned.directory)


def with_columns(rows: datasets.Dataset, **columns: list[Any]) -> datasets.Dataset:
    for name, values in columns.items():
        rows = rows.add_column(name, values)
    return rows


def test_every_group_is_what_a_loop_counts(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    regions = [["north", "south", None][row % 3] for row in range(90)]
    rows = with_columns(new_rows(90), region=regions, urgent=[row % 2 == 0 for row in range(90)])
    found = audit(model, dataset=rows, by=["region", "urgent"])
    predictions = model.predict_set(rows["text"])
    columns = {"class": rows["label"], "region": regions, "urgent": rows["urgent"]}
    assert [(g.column, g.value) for g in found.groups] == [
        *(("class", name) for name in LABELS if name in rows["label"]),
        ("region", "north"), ("region", "south"), ("region", None), ("urgent", False), ("urgent", True),
    ]  # fmt: skip
    for group in found.groups:
        members = [
            (rows["label"][row], predictions[row]) for row in range(90) if columns[group.column][row] == group.value
        ]
        assert group.rows == len(members)
        assert group.covered == sum(label in p["set"] for label, p in members)
        assert group.size_sum == sum(len(p["set"]) for _, p in members)
        assert group.correct == sum(label == p["label"] for label, p in members)
        assert group.empty == sum(not p["set"] for _, p in members)
        low = beta.ppf(0.025, group.covered, group.rows - group.covered + 1) if group.covered else 0
        high = beta.ppf(0.975, group.covered + 1, group.rows - group.covered) if group.covered < group.rows else 1
        assert group.interval == pytest.approx((low, high))
        assert group.target_inside == (low <= 0.8 <= high)
    assert found.whole.rows == 90 and found.whole.covered == sum(g.covered for g in found.groups if g.column == "class")


def test_by_default_the_test_role_as_evaluate_counts_it(model: CPPModelForCausalLM) -> None:
    found, row = audit(model), evaluate(model)
    assert (found.whole.rows, found.whole.covered, found.whole.size_sum, found.whole.correct) == (
        row.counts.rows, row.counts.covered, row.counts.size_sum, row.counts.correct,
    )  # fmt: skip
    assert found.band == row.band and {group.column for group in found.groups} == {"class"}


def test_a_table_says_what_it_does_not_say(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    found = audit(model, dataset=with_columns(new_rows(40), site=[1, 2] * 20), by=["site"])
    text = found.summary()
    assert "site = 1" in text and "guaranteed on average" in text
    assert text.count("*") - 1 == sum(not group.target_inside for group in found.groups)
    assert json.loads(json.dumps(found.to_dict()))["whole"]["rows"] == 40


def test_class_labels_are_shown_by_name(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    rows = with_columns(new_rows(30), tone=[0, 1, 1] * 10)
    rows = rows.cast_column("tone", datasets.ClassLabel(names=["calm", "angry"]))
    values = {group.value for group in audit(model, dataset=rows, by=["tone"]).groups if group.column == "tone"}
    assert values == {"calm", "angry"}


@pytest.mark.parametrize(
    ("columns", "by", "message"),
    [
        ({}, "region", "'region'"),
        ({"weight": [0.5] * 60}, "weight", "'weight' .* 0.5"),
        ({"id": list(range(60))}, "id", "at most 50 values, but it has 60"),
        ({"tags": [["a"]] * 60}, "tags", "'tags'"),
    ],
)
def test_a_column_that_makes_no_groups_is_named(
    model: CPPModelForCausalLM, new_rows: Rows, columns: dict[str, Any], by: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        audit(model, dataset=with_columns(new_rows(60), **columns), by=[by])


def test_used_rows_are_refused(model: CPPModelForCausalLM, pool_file: Path) -> None:
    with pytest.raises(DataError, match="already used"):
        audit(model, dataset=str(pool_file))


def test_duplicates_are_left_out(model: CPPModelForCausalLM, new_rows: Rows) -> None:
    rows = new_rows(20)
    twice = datasets.concatenate_datasets([rows, rows.map(lambda row: {"text": row["text"].upper()})])
    assert audit(model, dataset=twice).whole.rows == 20
    assert np.isclose(audit(model, dataset=twice).whole.coverage, audit(model, dataset=rows).whole.coverage)
