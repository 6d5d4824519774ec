"""The ledger: what it remembers, and what it refuses."""

from __future__ import annotations

import re

import pytest

from optimum_cpp.data.ledger import Ledger, check_unused
from optimum_cpp.errors import DataError, UsageError


def rows(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_the_error_counts_rows_and_purposes() -> None:
    ledger = Ledger().adding("prune", rows("p", 100)).adding("conformal", rows("c", 113))
    asked = rows("p", 100) + rows("c", 113) + rows("new", 2787)
    sentence = (
        "213 of the 3000 rows were already used (prune: 100, conformal: 113); give rows that this model has not seen."
    )
    with pytest.raises(DataError, match=re.escape(sentence)):
        check_unused(asked, ledger)


def test_a_row_with_two_purposes_counts_once_as_a_row() -> None:
    ledger = Ledger().adding("train", ["a", "b"]).adding("prune", ["a"])
    with pytest.raises(DataError, match=r"2 of the 3 rows .*\(train: 2, prune: 1\)"):
        check_unused(["a", "b", "c"], ledger)


def test_only_the_named_purposes_are_refused() -> None:
    ledger = Ledger().adding("test", ["a"])
    check_unused(["a"], ledger, purposes=("train", "prune", "conformal"))
    check_unused(["b"], ledger)
    with pytest.raises(DataError, match="1 of the 1 rows"):
        check_unused(["a"], ledger, purposes=("test",))


def test_adding_and_merging_leave_the_originals_alone() -> None:
    one = Ledger().adding("train", ["a"])
    two = Ledger().adding("prune", ["a", "b"])
    both = one.merged(two)
    assert both.rows == {"a": {"train", "prune"}, "b": {"prune"}}
    assert one.rows == {"a": {"train"}} and two.rows == {"a": {"prune"}, "b": {"prune"}}
    assert both == two.merged(one)
    assert len(both) == 2


def test_round_trip_is_sorted_and_leaves_out_empty_purposes() -> None:
    ledger = Ledger().adding("test", ["z", "a"]).adding("train", ["a"])
    assert ledger.to_dict() == {"train": ["a"], "test": ["a", "z"]}
    assert Ledger.from_dict(ledger.to_dict()) == ledger
    assert Ledger().to_dict() == {}


def test_unknown_purposes_are_refused() -> None:
    with pytest.raises(UsageError, match="'looked at'"):
        Ledger().adding("looked at", ["a"])
    with pytest.raises(UsageError, match="'validation'"):
        check_unused([], Ledger(), purposes=("validation",))
    with pytest.raises(UsageError, match="'val'"):
        Ledger.from_dict({"val": ["a"]})


def test_a_ledger_does_not_print_its_rows() -> None:
    assert "secret" not in repr(Ledger().adding("train", ["secret"]))
