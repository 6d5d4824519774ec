"""Opening a labelled data set: a Hub id, a local folder or file, or `datasets` objects, as named splits."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, UsageError

if TYPE_CHECKING:
    import datasets

_READERS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


@dataclass(frozen=True)
class OpenedData:
    """Splits by name, in the data set's order, with the id and (for the Hub) the commit they came from."""

    id: str
    revision: str | None
    splits: Mapping[str, datasets.Dataset]

    def pooled(self, names: Sequence[str]) -> OpenedData:
        """Only these splits, in this order.

        Raises:
            DataError: a name that is not a split; the sentence lists those that are.
        """
        for name in names:
            if name not in self.splits:
                raise DataError(f"{self.id} has no split {name!r}; its splits are {', '.join(self.splits)}.")
        return OpenedData(self.id, self.revision, {name: self.splits[name] for name in names})


def open_data(
    dataset: str | os.PathLike[str] | datasets.Dataset | datasets.DatasetDict, revision: str | None = None
) -> OpenedData:
    """Every split of a data set.

    A folder is read as `datasets.load_dataset` reads it (splits by file name); a single csv, tsv, json,
    jsonl or parquet file is one split, `train`; a `Dataset` is one split, named as it names itself
    (else `train`). `revision` is for the Hub only; the commit that was read is kept.

    Raises:
        DataError: nothing is found, or it cannot be read.
        UsageError: neither a name nor a `datasets` object, a file of an unknown kind, or a `revision` of
            something that is not on the Hub.
    """
    import datasets

    if revision is not None and not _is_hub_id(dataset):
        raise UsageError("Expected argument `revision` to come with a data set on the Hub, but this one is local.")
    if isinstance(dataset, datasets.DatasetDict):
        return OpenedData(_own_name(*dataset.values()), None, dict(dataset))
    if isinstance(dataset, datasets.Dataset):
        return OpenedData(_own_name(dataset), None, {str(dataset.split or "train"): dataset})
    if not isinstance(dataset, (str, os.PathLike)):
        raise UsageError(
            "Expected argument `dataset` to be a Hub id, a local folder or file, a Dataset or a DatasetDict, "
            f"but got {type(dataset).__name__}."
        )
    return _open_named(os.fspath(dataset), revision)


def _open_named(name: str, revision: str | None) -> OpenedData:
    path = Path(os.path.expanduser(name))
    if path.is_file():
        reader = _READERS.get(path.suffix.lower())
        if reader is None:
            raise UsageError(f"Expected {name} to end in one of {', '.join(_READERS)}, but it does not.")
        options = {"sep": "\t"} if path.suffix.lower() == ".tsv" else {}
        splits, _ = _prepare(name, reader, data_files=str(path), **options)
        return OpenedData(name, None, splits)
    if name and path.is_dir():
        splits, _ = _prepare(name, str(path))
        return OpenedData(name, None, splits)
    if not _is_hub_id(name) or path.suffix.lower() in _READERS:
        raise DataError(f"There is no file or folder {name!r}, and it cannot be the id of a data set on the Hub.")
    splits, commit = _prepare(name, name, revision=revision)
    return OpenedData(name, commit or revision, splits)


def _is_hub_id(dataset: object) -> bool:
    """Whether this can only be an id on the Hub: `name` or `owner/name`, and nothing local of that name."""
    if not isinstance(dataset, str) or Path(dataset).exists():
        return False
    return re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", dataset) is not None


def _own_name(*tables: datasets.Dataset) -> str:
    """The name under which loaded tables were read, `in-memory` if they were made in memory."""
    for table in tables:
        name, reader = table.info.dataset_name, table.info.builder_name
        if name and name != reader:
            return str(name)
    return "in-memory"


def _prepare(name: str, path: str, **options: Any) -> tuple[dict[str, datasets.Dataset], str | None]:
    """Build the splits; `name` is what the user wrote, for the error. Second item: the Hub's commit."""
    import datasets

    try:
        builder = datasets.load_dataset_builder(path, **options)
        if builder.name == "csv":
            # By default the words "null", "None" and "NA" in a csv file are read as missing values.
            builder = datasets.load_dataset_builder(path, keep_default_na=False, **options)
        builder.download_and_prepare()
        splits = builder.as_dataset()
    except Exception as error:  # its causes range from httpx and fsspec to pyarrow, pandas and json
        first_line = next(iter(str(error.__cause__ or error).strip().splitlines()), "")
        advice = "check its name, your connection and your access, or pass an already loaded Dataset"
        if Path(os.path.expanduser(name)).exists():
            advice = "check that it holds labelled rows in the format that its name says"
        raise DataError(
            f"The data set {name!r} cannot be opened ({type(error).__name__}: {first_line.rstrip('.')}); {advice}."
        ) from error
    return dict(splits), _commit(builder.config.data_files)


def _commit(data_files: Mapping[str, Sequence[str]] | None) -> str | None:
    """The commit in `hf://datasets/owner/name@commit/path` of the files that were read."""
    for paths in (data_files or {}).values():
        for path in paths:
            found = re.match(r"hf://datasets/[^@]+@([0-9a-f]{40})/", str(path))
            if found:
                return found.group(1)
    return None
