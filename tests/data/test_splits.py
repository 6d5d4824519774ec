"""The `split` option, in both its forms."""

from __future__ import annotations

import pytest

from optimum_cpp.data.splits import parse_splits
from optimum_cpp.errors import UsageError


@pytest.mark.parametrize(
    ("entries", "pooled"),
    [
        ((), ()),
        (("train",), ("train",)),
        (("train", "test"), ("train", "test")),
        (("train+test",), ("train", "test")),
        (("test", "train+test"), ("test", "train")),
    ],
)
def test_splits_to_pool(entries: tuple[str, ...], pooled: tuple[str, ...]) -> None:
    assert parse_splits(entries) == (pooled, {})


def test_a_split_for_each_role() -> None:
    entries = ("prune=validation", "val=validation", "conformal=train + test", "test=test+train")
    assert parse_splits(entries) == (
        ("validation", "train", "test"),
        {"prune": "validation", "val": "validation", "conformal": "train+test", "test": "test+train"},
    )


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (("prune=a", "val=a", "conformal=a", "b"), "'b' names none"),
        (("prune=a", "val=a", "conformal=a"), "'test' has none"),
        (("prune=a", "prune=b", "val=a", "conformal=a", "test=a"), "'prune' stands there twice"),
        (("validation=a",), "'validation=a'"),
        (("val_cal=a",), "one of prune, val, conformal, test"),
        (("prune=", "val=a", "conformal=a", "test=a"), "but got ''"),
        (("train++test",), r"'train\+\+test'"),
        (("prune=a", "val=a", "conformal=a", "test=b"), "exchangeable, but got conformal=a and test=b"),
        (("prune=a", "val=a", "conformal=a+b", "test=b"), r"conformal=a\+b and test=b"),
    ],
)
def test_entries_that_are_refused(entries: tuple[str, ...], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        parse_splits(entries)
