"""Gaps of coverage, against plain loops and other libraries' definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimum_cpp.conformal import coverage_gap, size_stratified_violation
from optimum_cpp.conformal.conditional import SIZE_STRATA
from optimum_cpp.errors import DataError, UsageError

COVERED = np.array([True, True, False, True, False, True])


def test_a_gap_is_the_mean_over_groups_and_not_over_rows() -> None:
    groups = np.array(["a", "a", "a", "a", "b", "b"])
    # Coverage 3/4 and 1/2 against 0.9.
    assert coverage_gap(COVERED, groups, "0.1") == pytest.approx((0.15 + 0.4) / 2)


def test_strata_hold_both_their_bounds() -> None:
    sizes = np.array([0, 1, 2, 3, 4, 10])
    # Sizes 0 and 1: 1; 2 and 3: 1/2; 4 and 10: 1/2.
    assert size_stratified_violation(COVERED, sizes, "0.2") == pytest.approx(0.3)


def test_sets_above_the_last_bound_belong_to_the_last_stratum() -> None:
    sizes = np.array([500, 2000, 500, 1, 2000, 1])
    # 1/4 of 500 and 2000: covered, covered, not, not.
    assert size_stratified_violation(COVERED, sizes, "0.2") == pytest.approx(0.3)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 150)), min_size=1, max_size=60),
    st.sampled_from(["0.1", "0.05", "0.25"]),
)
def test_both_equal_loops(rows: list[tuple[bool, int, int]], alpha: str) -> None:
    covered, groups, sizes = (np.array(column) for column in zip(*rows, strict=True))
    gaps = []
    for group in set(groups.tolist()):
        members = [hit for hit, other, _ in rows if other == group]
        gaps.append(abs(sum(members) / len(members) - (1 - float(alpha))))
    assert coverage_gap(covered, groups, alpha) == pytest.approx(sum(gaps) / len(gaps), abs=1e-12)
    worst = 0.0
    for low, high in SIZE_STRATA:
        members = [hit for hit, _, size in rows if low <= size <= high]
        if members:
            worst = max(worst, abs(sum(members) / len(members) - (1 - float(alpha))))
    assert size_stratified_violation(covered, sizes, alpha) == pytest.approx(worst, abs=1e-12)


def test_conditional_coverage_by_set_size_agrees_with_mapie() -> None:
    """MAPIE gives the smallest coverage of any size; ours the largest distance from the target, by stratum."""
    from mapie.metrics.classification import classification_ssc_score

    generator = np.random.default_rng(0)
    sets = generator.random((400, 2)) < [0.9, 0.2]
    sets[:, 0] |= ~sets.any(axis=1)  # sizes 1 and 2, which lie in two strata
    labels = (generator.random(400) < 0.4).astype(int)
    covered = sets[np.arange(400), labels]
    smallest = float(classification_ssc_score(labels, sets[:, :, None])[0])
    assert smallest < 0.9
    largest = max(float(covered[sets.sum(1) == size].mean()) for size in (1, 2))
    expected = max(0.9 - smallest, abs(largest - 0.9))
    assert size_stratified_violation(covered, sets.sum(axis=1), "0.1") == pytest.approx(expected)


@pytest.mark.parametrize("covered", [np.array([], dtype=bool), np.array([1, 0]), np.array([[True]]), [True]])
def test_coverage_that_is_no_bool_array_is_refused(covered: object) -> None:
    with pytest.raises(DataError, match="`covered`"):
        coverage_gap(covered, np.array([0]), "0.1")  # type: ignore[arg-type]


def test_other_bad_input_is_named() -> None:
    with pytest.raises(DataError, match="`groups`"):
        coverage_gap(COVERED, np.array([1, 2]), "0.1")
    with pytest.raises(DataError, match="`sizes`"):
        size_stratified_violation(COVERED, np.array([1, 2, 3, 4, 5, -1]), "0.1")
    with pytest.raises(UsageError, match="alpha"):
        coverage_gap(COVERED, np.arange(6), "1")
