"""Opening data: folders, files and loaded objects, and one clear sentence when there is nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest

from optimum_cpp.data.sources import open_data
from optimum_cpp.errors import DataError, UsageError

ROWS = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


def test_a_folder_has_splits_by_file_name(write_jsonl: Callable[..., Path]) -> None:
    write_jsonl("data/test.jsonl", ROWS[:1])
    folder = write_jsonl("data/train.jsonl", ROWS).parent
    opened = open_data(folder)
    assert {split: len(table) for split, table in opened.splits.items()} == {"train": 2, "test": 1}
    assert (opened.id, opened.revision) == (str(folder), None)


def test_selected_splits_come_in_the_order_asked_for(write_jsonl: Callable[..., Path]) -> None:
    write_jsonl("data/test.jsonl", ROWS)
    opened = open_data(write_jsonl("data/train.jsonl", ROWS).parent)
    assert list(opened.pooled(("test", "train")).splits) == ["test", "train"]
    with pytest.raises(DataError, match="has no split 'validation'; its splits are train, test"):
        opened.pooled(("train", "validation"))


def test_a_single_file_is_one_split(write_jsonl: Callable[..., Path]) -> None:
    assert list(open_data(write_jsonl("test.jsonl", ROWS)).splits) == ["train"]


def test_tabs_separate_the_columns_of_a_tsv_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\na, b\tx\n", encoding="utf-8")
    assert open_data(path).splits["train"][:] == {"text": ["a, b"], "label": ["x"]}


@pytest.mark.parametrize("name", ["rows.csv", "folder/train.csv"])
def test_csv_words_for_nothing_stay_words(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("text,label\nnull,NA\nNone,x\n", encoding="utf-8")
    opened = open_data(path if name == "rows.csv" else path.parent)
    assert opened.splits["train"][:] == {"text": ["null", "None"], "label": ["NA", "x"]}


def test_loaded_objects_keep_their_splits_and_name(write_jsonl: Callable[..., Path]) -> None:
    loaded = datasets.load_dataset(str(write_jsonl("toy_set/test.jsonl", ROWS).parent))
    assert list(open_data(loaded).splits) == ["test"]
    assert open_data(loaded).id == open_data(loaded["test"]).id == "toy_set"
    assert list(open_data(loaded["test"]).splits) == ["test"]


def test_objects_made_in_memory_are_called_so() -> None:
    opened = open_data(datasets.Dataset.from_list(ROWS))
    assert (opened.id, list(opened.splits)) == ("in-memory", ["train"])


@pytest.mark.parametrize("dataset", [ROWS, 3, datasets.Dataset.from_list(ROWS).to_iterable_dataset()])
def test_other_objects_are_refused(dataset: Any) -> None:
    with pytest.raises(UsageError, match=f"but got {type(dataset).__name__}"):
        open_data(dataset)


@pytest.mark.parametrize("name", ["./absent", "no/such/folder", "/absent", "../absent", "~absent/x", "has space", ""])
def test_a_name_that_is_neither_local_nor_an_id(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"no file or folder .* cannot be the id"):
        open_data(name)


def test_a_file_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.xlsx"
    path.touch()
    with pytest.raises(UsageError, match=r"rows\.xlsx to end in one of \.csv, \.tsv, \.json, \.jsonl, \.parquet"):
        open_data(path)


@pytest.mark.parametrize("name", ["bad.jsonl", "bad.parquet"])
def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text('{"text": "a", "label"\n', encoding="utf-8")
    with pytest.raises(DataError, match=rf"{name}' cannot be opened \(\w+: .+\)"):
        open_data(path)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be opened"):
        open_data(tmp_path)


def test_a_revision_belongs_to_the_hub(write_jsonl: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="revision"):
        open_data(write_jsonl("rows.jsonl", ROWS), "main")
    with pytest.raises(UsageError, match="revision"):
        open_data(datasets.Dataset.from_list(ROWS), "main")


class FakeBuilder:
    """Stands for what `load_dataset_builder` makes of an id on the Hub."""

    name = "parquet"

    def __init__(self, files: dict[str, list[str]] | None) -> None:
        self.config = SimpleNamespace(data_files=files)

    def download_and_prepare(self) -> None:
        pass

    def as_dataset(self) -> datasets.DatasetDict:
        return datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS))


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        ({"train": [f"hf://datasets/me/toy@{'0123456789' * 4}/data/train.parquet"]}, "0123456789" * 4),
        ({"train": ["hf://datasets/me/toy@main/data/train.parquet"]}, "v1"),
        (None, "v1"),
    ],
)
def test_the_commit_on_the_hub_is_kept(
    files: dict[str, list[str]] | None, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []

    def load(path: str, **options: Any) -> FakeBuilder:
        calls.append((path, options))
        return FakeBuilder(files)

    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    opened = open_data("me/toy", "v1")
    assert (opened.id, opened.revision, list(opened.splits)) == ("me/toy", kept, ["train"])
    assert calls == [("me/toy", {"revision": "v1"})]


def test_a_data_set_that_the_hub_does_not_have_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(path: str, **options: Any) -> None:
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'me/absent' doesn't exist on the Hub.\nMore.")

    monkeypatch.setattr(datasets, "load_dataset_builder", load)
    with pytest.raises(DataError) as caught:
        open_data("me/absent")
    assert str(caught.value) == (
        "The data set 'me/absent' cannot be opened (DatasetNotFoundError: Dataset 'me/absent' doesn't exist "
        "on the Hub); check its name, your connection and your access, or pass an already loaded Dataset."
    )
