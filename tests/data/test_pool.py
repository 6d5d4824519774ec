"""The pool: every way of giving the same rows gives the same pool, and every bad row is named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from optimum_cpp.data import Pool, fingerprint, load_pool
from optimum_cpp.data.fingerprints import rows_digest
from optimum_cpp.errors import DataError, UsageError

NAMES = ("bird", "cat", "dog")
ROWS = [("it sings, early", "bird"), ('it "purrs"', "cat"), ("sie bellt — laut", "dog"), ("null", "cat")]


def table(rows: Sequence[tuple[Any, Any]] = ROWS, **features: Any) -> datasets.Dataset:
    columns = {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features) if features else None)


def named_table(rows: Sequence[tuple[str, str]] = ROWS, names: Sequence[str] = NAMES) -> datasets.Dataset:
    label = datasets.ClassLabel(names=list(names))
    return table([(text, names.index(name)) for text, name in rows], text=datasets.Value("string"), label=label)


def same_rows(pool: Pool) -> None:
    assert pool.texts == tuple(text for text, _ in ROWS)
    assert pool.label_names == NAMES
    assert tuple(pool.label_names[k] for k in pool.labels) == tuple(name for _, name in ROWS)
    assert pool.row_splits == ("train",) * 4
    assert pool.source.splits == ("train",)
    assert pool.source.digest == rows_digest([fingerprint(text, name) for text, name in ROWS])


@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "jsonl", "parquet"])
@pytest.mark.parametrize("inside", ["file", "folder"])
def test_files_and_folders_give_the_same_pool(tmp_path: Path, kind: str, inside: str) -> None:
    path = tmp_path / "toy" / f"train.{kind}"
    path.parent.mkdir()
    if kind == "parquet":
        table().to_parquet(path)
    elif kind in ("csv", "tsv"):
        table().to_csv(path, sep="\t" if kind == "tsv" else ",")
    else:
        table().to_json(path, lines=kind == "jsonl")
    same_rows(load_pool(path if inside == "file" else str(path.parent)))


@pytest.mark.parametrize(
    "loaded",
    [table(), datasets.DatasetDict(train=table()), named_table(), named_table().with_format("numpy")],
    ids=["strings", "dict", "class label", "numpy format"],
)
def test_loaded_objects_give_the_same_pool(loaded: Any) -> None:
    same_rows(load_pool(loaded))


def test_class_label_survives_parquet(tmp_path: Path) -> None:
    named_table(names=("dog", "cat", "bird")).to_parquet(tmp_path / "train.parquet")
    pool = load_pool(tmp_path / "train.parquet")
    assert pool.label_names == ("dog", "cat", "bird") and pool.labels == (2, 1, 0, 1)


def test_whole_numbers_index_the_given_names() -> None:
    same_rows(load_pool(table([(text, NAMES.index(name)) for text, name in ROWS]), label_names=NAMES))


def test_given_names_set_the_order_of_the_label_space() -> None:
    order = ("dog", "fish", "bird", "cat")
    for loaded in (table(), named_table()):
        pool = load_pool(loaded, label_names=order)
        assert pool.label_names == order and pool.labels == (2, 3, 0, 3)


def test_class_label_names_without_rows_belong_to_the_label_space() -> None:
    assert load_pool(named_table(ROWS[:2])).label_names == NAMES


def test_shuffled_and_selected_rows_are_read_in_their_new_order() -> None:
    assert load_pool(named_table().select([3, 0])).texts == ("null", "it sings, early")


def test_several_splits_are_pooled_in_order() -> None:
    loaded = datasets.DatasetDict(test=named_table(ROWS[:1]), train=named_table(ROWS[1:]))
    pool = load_pool(loaded)
    assert pool.row_splits == ("test", "train", "train", "train")
    assert load_pool(loaded, split=("train", "test")).row_splits == ("train", "train", "train", "test")
    assert load_pool(loaded, split="train").source.splits == ("train",)
    assert [pool.place(row) for row in (0, 1, 3)] == [
        "Row 0 of split 'test'",
        "Row 0 of split 'train'",
        "Row 2 of split 'train'",
    ]


def test_the_digest_sees_texts_labels_and_order() -> None:
    digest = load_pool(named_table()).source.digest
    assert load_pool(named_table(ROWS[::-1])).source.digest != digest
    assert load_pool(named_table([("it sings, early", "cat"), *ROWS[1:]])).source.digest != digest
    assert load_pool(named_table([("it sings , early", "bird"), *ROWS[1:]])).source.digest != digest
    assert load_pool(named_table(names=("dog", "cat", "bird"))).source.digest == digest


@pytest.mark.parametrize("text", ["text", "sentence", "content", "question", "utterance", "query"])
@pytest.mark.parametrize("label", ["label", "labels", "intent", "category", "coarse_label"])
def test_usual_columns_are_found(text: str, label: str) -> None:
    loaded = table().rename_columns({"text": text, "label": label}).add_column("id", [0, 1, 2, 3])
    pool = load_pool(loaded)
    assert (pool.source.text_column, pool.source.label_column) == (text, label)


def test_a_column_with_names_goes_before_one_with_numbers() -> None:
    numbers = table([(text, NAMES.index(name)) for text, name in ROWS])
    loaded = numbers.add_column("label_text", [name for _, name in ROWS])
    assert load_pool(loaded).source.label_column == "label_text"
    assert load_pool(loaded, label_names=NAMES).source.label_column == "label"
    same_rows(load_pool(loaded))


def test_given_columns_are_used() -> None:
    loaded = table().add_column("body", ["a", "b", "c", "d"])
    assert load_pool(loaded, text_column="body").texts == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("columns", "arguments", "expected"),
    [
        ({"text": "words"}, {}, "pass as `text_column` one of words, label"),
        ({"label": "kind"}, {}, "pass as `label_column` one of text, kind"),
        (
            {},
            {"text_column": "txt"},
            "Split 'train' .* no column 'txt'; pass as `text_column` one of text, label",
        ),
        ({}, {"label_column": "y"}, "no column 'y'; pass as `label_column` one of text, label"),
    ],
)
def test_missing_columns_name_those_found(columns: dict[str, str], arguments: dict[str, str], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        load_pool(table().rename_columns(columns), **arguments)


@pytest.mark.parametrize(
    ("rows", "label_names", "expected"),
    [
        ([("a", "x"), (None, "y")], (), "Row 1 of split 'train' has no text"),
        ([("a", "x"), (" \n\t", "y")], (), "Row 1 of split 'train' has an empty text"),
        ([("a", "x"), ("", "y")], (), "Row 1 of split 'train' has an empty text"),
        ([("a", "x"), ("b", None)], (), "Row 1 of split 'train' has no label"),
        ([("a", "x"), ("b", "")], (), "Row 1 of split 'train' has no label"),
        ([("a", "x"), ("b", None)], ("x", "y"), "Row 1 of split 'train' has no label"),
        (
            [("a", "x"), ("b", "z")],
            ("x", "y"),
            r"Row 1 of split 'train' has label 'z', .* 2 label names \(x, y\)",
        ),
        ([("a", 0), ("b", 2)], ("x", "y"), "Row 1 of split 'train' has label 2, outside the range 0 to 1"),
        ([("a", 0), ("b", -1)], ("x", "y"), "Row 1 of split 'train' has label -1, outside the range 0 to 1"),
        ([("a", 0), ("b", None)], ("x", "y"), "Row 1 of split 'train' has no label"),
        ([("a", 0), ("b", 1)], (), "numbers without names; pass `label_names`"),
        ([("a", 0.0), ("b", 1.0)], ("x", "y"), r"Row 0 .* has float 0\.0 as label"),
        ([("a", [0]), ("b", [1])], ("x", "y"), r"Row 0 .* has list \[0\] as label"),
        ([(1, "x"), (2, "y")], (), "Row 0 of split 'train' has int 1 as text"),
        ([("a", "x"), ("b", "x")], (), "at least 2 labels, but it has x"),
        ([], (), "hold labelled rows, but it has none"),
    ],
)
def test_bad_rows_are_named(rows: list[tuple[Any, Any]], label_names: Sequence[str], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        load_pool(table(rows), label_names=label_names)


def test_a_split_without_labels_is_named() -> None:
    names = datasets.ClassLabel(names=list(NAMES))
    hidden = table([("a", -1), ("b", -1)], text=datasets.Value("string"), label=names)
    with pytest.raises(DataError, match=r"Row 0 of split 'test' has label -1, .* leave out a split without labels"):
        load_pool(datasets.DatasetDict(train=named_table(), test=hidden))


def test_splits_must_name_the_same_labels() -> None:
    loaded = datasets.DatasetDict(train=named_table(), test=named_table(names=("dog", "cat", "bird")))
    with pytest.raises(DataError, match=r"Splits 'train' and 'test' .* name different labels"):
        load_pool(loaded)
    assert load_pool(loaded, label_names=NAMES).labels == (0, 1, 2, 1) * 2


@pytest.mark.parametrize("names", [("x",), ("x", "y", "x")])
def test_given_names_are_at_least_two_and_different(names: Sequence[str]) -> None:
    with pytest.raises(UsageError, match="label_names"):
        load_pool(table(), label_names=names)


def test_a_pool_does_not_print_its_texts() -> None:
    assert "purrs" not in repr(load_pool(table()))


def test_numpy_integers_in_memory_are_whole_numbers() -> None:
    loaded = datasets.Dataset.from_dict({"text": ["a", "b"], "label": np.array([1, 0], dtype=np.int8)})
    assert load_pool(loaded, label_names=("x", "y")).labels == (1, 0)


def test_importing_the_package_does_not_import_what_is_heavy() -> None:
    heavy = ("torch", "transformers", "datasets", "yaml")
    code = f"import sys, optimum_cpp.data; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_jsonl_file_of_rows(write_jsonl: Callable[..., Path]) -> None:
    path = write_jsonl("rows.jsonl", [{"text": "a", "label": True}, {"text": "b", "label": False}])
    assert load_pool(path, label_names=("no", "yes")).labels == (1, 0)
