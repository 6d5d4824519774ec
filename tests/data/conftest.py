"""Small pools and a data-set cache of their own for the tests of `optimum_cpp.data`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import datasets
import pytest

from optimum_cpp.data import DatasetSource, Pool

LABELS = ("animal", "plant", "rock")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


@pytest.fixture
def make_pool() -> Callable[..., Pool]:
    """`make_pool(30)` or `make_pool(train=20, test=10)`: distinct texts, labels in turn."""

    def make(rows: int = 0, texts: Sequence[str] = (), labels: Sequence[int] = (), **splits: int) -> Pool:
        splits = splits or {"train": rows or len(texts)}
        names = tuple(split for split, count in splits.items() for _ in range(count))
        texts = tuple(texts) or tuple(f"text number {row} of the pool" for row in range(len(names)))
        labels = tuple(labels) or tuple(row % len(LABELS) for row in range(len(names)))
        source = DatasetSource("toy", None, tuple(splits), "text", "label", "sha256:" + "0" * 64)
        return Pool(texts, labels, LABELS, names, source)

    return make


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Callable[..., Path]:
    """Write rows to `name` under a temporary folder and give its path."""

    def write(name: str, rows: Sequence[dict[str, object]]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write
