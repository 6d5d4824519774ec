"""Role sizes: as requested, or a fair share of too few rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from optimum_cpp.data.allotment import Request, allot_rows
from optimum_cpp.errors import DataError


def requests(splits: Mapping[str, str] | None = None, **sizes: Any) -> list[Request]:
    wanted = {"prune": 1024, "val": 1024, "conformal": 1024, "test": 5000} | sizes
    names = splits or dict.fromkeys(wanted, "train")
    return [Request(role, size, frozenset(names[role].split("+"))) for role, size in wanted.items()]


def test_enough_rows_give_what_was_asked_for() -> None:
    counts, exceptions = allot_rows(requests(), {"train": 8072})
    assert counts == {"prune": 1024, "val": 1024, "conformal": 1024, "test": 5000}
    assert exceptions == []


@pytest.mark.parametrize("rows", [8071, 5869, 4036, 500, 16])
def test_a_small_pool_is_shared_out_in_proportion(rows: int) -> None:
    counts, exceptions = allot_rows(requests(), {"train": rows})
    share = 1024 * rows // 8072
    assert counts["prune"] == counts["conformal"] == share
    assert counts["val"] == share - share % 2
    assert sum(counts.values()) == rows
    assert len(exceptions) == 1
    assert f"has {rows} usable rows, fewer than the 8072 requested" in exceptions[0]


def test_all_takes_the_rest_and_counts_as_5000() -> None:
    assert allot_rows(requests(test="all"), {"train": 20_000})[0]["test"] == 20_000 - 3072
    assert allot_rows(requests(test="all"), {"train": 4036})[0] == allot_rows(requests(), {"train": 4036})[0]


def test_no_test_rows_stay_none_even_when_rows_are_left_over() -> None:
    counts, exceptions = allot_rows(requests(test=0), {"train": 1000})
    assert counts == {"prune": 333, "val": 332, "conformal": 333, "test": 0}
    assert "3072 requested" in exceptions[0]


def test_roles_compete_only_within_their_splits() -> None:
    splits = {"prune": "validation", "val": "validation", "conformal": "test", "test": "test"}
    counts, exceptions = allot_rows(requests(splits), {"validation": 2048, "test": 500})
    assert counts == {"prune": 1024, "val": 1024, "conformal": 1024 * 500 // 6024, "test": 500 - 84}
    assert exceptions == [
        "Split test has 500 usable rows, fewer than the 6024 requested, so they are shared out: conformal 84, test 416."
    ]


def test_overlapping_splits_compete_through_each_other() -> None:
    splits = {"prune": "a", "val": "a+b", "conformal": "b+c", "test": "c+b"}
    counts, exceptions = allot_rows(requests(splits), {"a": 2018, "b": 1009, "c": 1009})
    assert counts["prune"] == counts["val"] == counts["conformal"] == 512
    # Half of the requested rows are there, but test can only have what b and c hold.
    assert counts["test"] == 2018 - 512
    assert len(exceptions) == 1


def test_an_empty_role_is_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match=r"Role prune would be empty: 8072 rows .* which has 7 usable rows"):
        allot_rows(requests(), {"train": 7})
    with pytest.raises(DataError, match="Role val would be empty"):
        allot_rows(requests(), {"train": 15})
    with pytest.raises(DataError, match=r"Role conformal would be empty.*split test, which has 0"):
        allot_rows(requests({"prune": "train", "val": "train", "conformal": "test", "test": "test"}), {"train": 3000})
