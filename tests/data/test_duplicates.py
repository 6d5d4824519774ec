"""Duplicates: exact groups under each policy, near duplicates against a brute-force count."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimum_cpp.data.duplicates import clean_duplicates, duplicate_groups, near_duplicates, word_grams
from optimum_cpp.errors import DataError, UsageError

TEXTS = ("A cat", "a  CAT", "a dog", "a cat", "a cow", "A Dog")
LABELS = (0, 0, 1, 2, 0, 1)


def describe(row: int) -> str:
    return f"row {row}"


def test_groups_follow_the_folded_texts() -> None:
    assert duplicate_groups(TEXTS) == [(0, 1, 3), (2, 5)]


def test_the_order_decides_which_row_comes_first() -> None:
    assert duplicate_groups(TEXTS, order=[5, 4, 3, 2, 1, 0]) == [(5, 2), (3, 1, 0)]


def test_drop_keeps_the_first_of_each_group() -> None:
    kept, findings = clean_duplicates(TEXTS, LABELS, "drop", describe=describe)
    assert kept == [0, 2, 4]
    assert (findings.found, findings.dropped, findings.contradictory) == (3, 3, 1)


def test_report_keeps_every_row() -> None:
    kept, findings = clean_duplicates(TEXTS, LABELS, "report", describe=describe)
    assert kept == [0, 1, 2, 3, 4, 5]
    assert (findings.policy, findings.found, findings.dropped, findings.contradictory) == ("report", 3, 0, 1)


def test_error_names_the_first_pair() -> None:
    with pytest.raises(DataError, match=r"3 rows repeat .*row 1 repeats row 0"):
        clean_duplicates(TEXTS, LABELS, "error", describe=describe)


def test_error_accepts_distinct_texts() -> None:
    kept, findings = clean_duplicates(("a", "b"), (0, 1), "error", describe=describe)
    assert kept == [0, 1] and findings.found == 0


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UsageError, match=r"on_duplicates.*'ignore'"):
        clean_duplicates(TEXTS, LABELS, "ignore", describe=describe)


def test_grams_are_sets_of_five_folded_words() -> None:
    assert word_grams("One two  THREE four five six") == {
        "one two three four five",
        "two three four five six",
    }
    assert word_grams("One two") == {"one two"}


@pytest.mark.parametrize(("length", "near"), [(12, {}), (13, {"a/b": 1})])
def test_the_threshold_is_exact(length: int, near: dict[str, int]) -> None:
    # n words have n - 4 grams; another last word changes one of them: (n - 5) / (n - 3), at 13 exactly 0.8.
    words = [f"w{number}" for number in range(length)]
    assert near_duplicates({"a": [" ".join(words)], "b": [" ".join([*words[:-1], "other"])]}) == near


def brute_force(roles: Mapping[str, Sequence[str]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for a, b in itertools.combinations(roles, 2):
        pairs = itertools.product(map(word_grams, roles[a]), map(word_grams, roles[b]))
        near = sum(Fraction(len(x & y), len(x | y)) >= Fraction(4, 5) for x, y in pairs)
        if near:
            counts[f"{a}/{b}"] = near
    return counts


# Few words and a long common text, so that random edits give indices around the threshold.
BASE = " ".join(f"word{number}" for number in range(24))
EDITED = st.tuples(st.integers(0, 23), st.sampled_from(["x", "y", ""]), st.integers(10, 24)).map(
    lambda edit: " ".join([*BASE.split()[: edit[0]], edit[1], *BASE.split()[edit[0] + 1 :]][: edit[2]])
)
SHORT = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=8).map(" ".join)
ROWS = st.lists(st.one_of(EDITED, SHORT), max_size=12)


@settings(deadline=None)
@given(ROWS, ROWS, ROWS)
def test_near_duplicates_equal_the_brute_force_count(a: list[str], b: list[str], c: list[str]) -> None:
    roles = {"prune": a, "val_cal": b, "test": c}
    assert near_duplicates(roles) == brute_force(roles)


def test_rows_of_one_role_are_not_pairs() -> None:
    assert near_duplicates({"a": ["same text"] * 3, "b": ["another"]}) == {}


def test_many_equal_rows_are_counted_without_being_compared_one_by_one() -> None:
    assert near_duplicates({"a": ["same text"] * 3000, "b": ["same text"] * 4000}) == {"a/b": 12_000_000}
