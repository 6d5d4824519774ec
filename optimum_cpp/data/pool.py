"""The pool: labelled rows of one data set, checked once and then never changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import DataError, UsageError
from .fingerprints import fingerprint, rows_digest
from .sources import OpenedData, open_data

if TYPE_CHECKING:
    import datasets

TEXT_COLUMNS = (
    "text", "sentence", "content", "question", "utterance", "query", "document", "review", "description",
    "title", "input",
)  # fmt: skip
LABEL_COLUMNS = (
    "label", "labels", "intent", "category", "coarse_label", "label_coarse", "class", "target", "topic",
    "label_text", "label_name", "fine_label",
)  # fmt: skip


@dataclass(frozen=True)
class DatasetSource:
    """Where the rows came from, as the split manifest records it.

    `revision` is the Hub's commit (None for local data), `digest` is `"sha256:…"` over the fingerprints
    of all rows in pool order.
    """

    id: str
    revision: str | None
    splits: tuple[str, ...]
    text_column: str
    label_column: str
    digest: str


@dataclass(frozen=True)
class Pool:
    """N labelled rows. `labels` index `label_names`; `row_splits` says which split each row came from.

    `columns` holds further columns that were asked for, name -> N values.
    """

    texts: tuple[str, ...] = field(repr=False)
    labels: tuple[int, ...] = field(repr=False)
    label_names: tuple[str, ...]
    row_splits: tuple[str, ...] = field(repr=False)
    source: DatasetSource
    columns: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.texts)

    def fingerprint(self, row: int) -> str:
        """The fingerprint of one row."""
        return fingerprint(self.texts[row], self.label_names[self.labels[row]])

    def place(self, row: int) -> str:
        """A row's place for an error: its number within its split, counted from 0."""
        split = self.row_splits[row]
        return _place(split, self.row_splits[:row].count(split))


def load_pool(
    dataset: str | os.PathLike[str] | datasets.Dataset | datasets.DatasetDict,
    *,
    revision: str | None = None,
    split: str | Sequence[str] = (),
    text_column: str | None = None,
    label_column: str | None = None,
    label_names: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Pool:
    """Read and check the labelled rows of a data set.

    `dataset` is a Hub id, a local folder, a csv, tsv, json, jsonl or parquet file, or a loaded
    `datasets` object; `split` names the splits to pool (default: all). Columns that are not given are
    found by their usual names. The label space is `label_names` if given, else the names of the
    `ClassLabel`, else the label strings in ascending code-point order; whole numbers without names
    need `label_names`, which they index. `columns` names further columns to keep.

    Raises:
        DataError: data that is not found, a missing column or split, a row without text or label, or a
            label outside the label space; the sentence names the row.
        UsageError: `label_names` with fewer than 2 or repeated names.
    """
    opened = open_data(dataset, revision)
    names = (split,) if isinstance(split, str) else split
    return read_pool(
        opened.pooled(names) if names else opened,
        text_column=text_column,
        label_column=label_column,
        label_names=label_names,
        columns=columns,
    )


def read_pool(
    opened: OpenedData,
    *,
    text_column: str | None,
    label_column: str | None,
    label_names: Sequence[str],
    columns: Sequence[str] = (),
) -> Pool:
    """The rows of opened splits as a pool; arguments and errors as in `load_pool`."""
    _check_given_names(label_names)
    tables = opened.splits
    if not any(len(table) for table in tables.values()):
        raise DataError(f"Expected {opened.id} to hold labelled rows, but it has none.")
    text_column, label_column = _find_columns(opened, text_column, label_column, named=bool(label_names))
    names = tuple(label_names) or _declared_names(opened, label_column) or _found_names(opened, label_column)
    if len(names) < 2:
        raise DataError(f"Expected {opened.id} to have at least 2 labels, but it has {', '.join(names) or 'none'}.")
    index = {name: k for k, name in enumerate(names)}
    texts: list[str] = []
    labels: list[int] = []
    row_splits: list[str] = []
    for split, table in tables.items():
        before = len(texts)
        texts.extend(_texts(split, table, text_column))
        labels.extend(_labels(split, table, label_column, index))
        row_splits.extend([split] * (len(texts) - before))
    digest = rows_digest([fingerprint(text, names[k]) for text, k in zip(texts, labels, strict=True)])
    source = DatasetSource(opened.id, opened.revision, tuple(tables), text_column, label_column, digest)
    further = {name: tuple(_further(opened, name)) for name in columns}
    return Pool(tuple(texts), tuple(labels), names, tuple(row_splits), source, further)


def _check_given_names(names: Sequence[str]) -> None:
    if names and (len(names) < 2 or len(set(names)) < len(names)):
        raise UsageError(
            f"Expected argument `label_names` to hold at least 2 different names, but got {', '.join(names)}."
        )


def _find_columns(
    opened: OpenedData, text_column: str | None, label_column: str | None, *, named: bool
) -> tuple[str, str]:
    """The text and the label column, which every split must have."""
    first = next(iter(opened.splits.values()))
    if text_column is None:
        text_column = _first_of(opened, "text_column", TEXT_COLUMNS, first.column_names)
    if label_column is None:
        candidates = [name for name in LABEL_COLUMNS if name in first.column_names]
        # Data that was flattened to numbers often keeps the names beside them ("label", "label_text").
        telling = [name for name in candidates if named or _tells_names(first.features[name])]
        label_column = _first_of(opened, "label_column", telling + candidates, first.column_names)
    for split, table in opened.splits.items():
        for argument, column in (("text_column", text_column), ("label_column", label_column)):
            if column not in table.column_names:
                raise DataError(
                    f"Split {split!r} of {opened.id} has no column {column!r}; pass as `{argument}` one of "
                    f"{', '.join(table.column_names)}."
                )
    return text_column, label_column


def _first_of(opened: OpenedData, argument: str, usual: Sequence[str], columns: Sequence[str]) -> str:
    for name in usual:
        if name in columns:
            return name
    raise DataError(f"No column of {opened.id} has a usual name; pass as `{argument}` one of {', '.join(columns)}.")


def _tells_names(feature: Any) -> bool:
    return hasattr(feature, "names") or getattr(feature, "dtype", None) in ("string", "large_string")


def _declared_names(opened: OpenedData, column: str) -> tuple[str, ...]:
    """The names of the `ClassLabel`, the same in every split that has one; empty if none has."""
    declared: dict[str, tuple[str, ...]] = {}
    for split, table in opened.splits.items():
        names = getattr(table.features[column], "names", None)
        if names:
            declared[split] = tuple(names)
    first = next(iter(declared), "")
    for split, names in declared.items():
        if names != declared[first]:
            raise DataError(
                f"Splits {first!r} and {split!r} of {opened.id} name different labels in column {column!r}; "
                "pass `label_names` to say which are meant, in order."
            )
    return declared.get(first, ())


def _found_names(opened: OpenedData, column: str) -> tuple[str, ...]:
    """The distinct label strings, ascending."""
    found: set[str] = set()
    for split, table in opened.splits.items():
        for row, value in enumerate(_values(table, column)):
            if isinstance(value, int):
                raise DataError(
                    f"The labels in column {column!r} of {opened.id} are numbers without names; "
                    "pass `label_names` in the order of the numbers, or another `label_column`."
                )
            found.add(_string_label(split, row, value))
    return tuple(sorted(found))


def _texts(split: str, table: datasets.Dataset, column: str) -> Iterator[str]:
    for row, value in enumerate(_values(table, column)):
        if not isinstance(value, str):
            got = "no text" if value is None else f"{type(value).__name__} {value!r} as text"
            raise DataError(f"{_place(split, row)} has {got} in column {column!r}; expected a string.")
        if not value.strip():
            raise DataError(f"{_place(split, row)} has an empty text in column {column!r}; remove or complete it.")
        yield value


def _labels(split: str, table: datasets.Dataset, column: str, index: Mapping[str, int]) -> Iterator[int]:
    own_names = getattr(table.features[column], "names", None) or list(index)
    for row, value in enumerate(_values(table, column)):
        name = value
        if isinstance(value, int):
            if not 0 <= value < len(own_names):
                raise DataError(
                    f"{_place(split, row)} has label {value}, outside the range 0 to {len(own_names) - 1} "
                    f"of the {len(own_names)} label names; correct it, or leave out a split without labels."
                )
            name = own_names[value]
        known = index.get(_string_label(split, row, name))
        if known is None:
            raise DataError(
                f"{_place(split, row)} has label {name!r}, which is not one of the {len(index)} label names "
                f"({', '.join(list(index)[:5])}{', …' if len(index) > 5 else ''}); correct it or "
                "`label_names`."
            )
        yield known


def _further(opened: OpenedData, column: str) -> Iterator[Any]:
    for split, table in opened.splits.items():
        if column not in table.column_names:
            raise DataError(
                f"Split {split!r} of {opened.id} has no column {column!r}; there are {', '.join(table.column_names)}."
            )
        names = getattr(table.features[column], "names", None)
        for value in _values(table, column):
            yield names[value] if names and value is not None else value


def _string_label(split: str, row: int, value: Any) -> str:
    if value is None or value == "":
        raise DataError(f"{_place(split, row)} has no label; remove the row or complete it.")
    if not isinstance(value, str):
        raise DataError(
            f"{_place(split, row)} has {type(value).__name__} {value!r} as label; expected one name or whole number."
        )
    return value


def _values(table: datasets.Dataset, column: str) -> Sequence[Any]:
    # A format set by the caller (torch, numpy) would turn strings and numbers into arrays.
    values: Sequence[Any] = table.with_format(None)[column][:]
    return values


def _place(split: str, row: int) -> str:
    return f"Row {row} of split {split!r}"
