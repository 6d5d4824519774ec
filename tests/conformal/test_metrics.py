"""Counts, ECE, and the laws of coverage, against loops and independent formulas."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, betabinom, binom

from optimum_cpp.conformal import (
    SetEvaluation,
    acceptance_band,
    conformal_rank,
    evaluate_sets,
    expected_calibration_error,
    expected_coverage_upper,
    hoeffding_interval,
)
from optimum_cpp.errors import DataError, UsageError

SETS = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]], dtype=bool)
LABELS = np.array([0, 0, 1, 2])
PROBABILITIES = np.array([[0.8, 0.1, 0.1], [0.2, 0.4, 0.4], [0.0, 1.0, 0.0], [0.4, 0.2, 0.4]])


def test_hand_made_evaluation() -> None:
    result = evaluate_sets(SETS, LABELS, PROBABILITIES)
    assert (result.rows, result.classes, result.covered, result.size_sum) == (4, 3, 2, 6)
    assert (result.empty, result.singletons, result.size_histogram) == (1, 1, (1, 1, 1, 1))
    # Predictions 0, 1 (a tie, lower index), 1, 0 (a tie, lower index): rows 0 and 2 are correct.
    assert result.correct == 2
    # Bins 12 (.8, right), 6 (.4 twice, wrong) and 14 (1.0, right).
    assert result.ece == pytest.approx((0.2 + 0.8 + 0.0) / 4)
    assert (result.coverage, result.mean_set_size, result.accuracy) == (0.5, 1.5, 0.5)


def test_counts_are_python_numbers() -> None:
    for value in dataclasses.astuple(evaluate_sets(SETS, LABELS, PROBABILITIES)):
        assert type(value) in (int, float, tuple)
    assert all(type(count) is int for count in evaluate_sets(SETS, LABELS, PROBABILITIES).size_histogram)


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 6))
def test_counts_equal_a_loop(seed: int, rows: int, classes: int) -> None:
    generator = np.random.default_rng(seed)
    sets = generator.random((rows, classes)) < 0.5
    labels = generator.integers(classes, size=rows)
    probabilities = generator.dirichlet(np.ones(classes), size=rows).round(1).clip(0, 1)
    result = evaluate_sets(sets, labels, probabilities)
    sizes = [sum(row) for row in sets.tolist()]
    assert result.covered == sum(row[label] for row, label in zip(sets.tolist(), labels, strict=True))
    assert result.size_sum == sum(sizes)
    assert result.size_histogram == tuple(sizes.count(size) for size in range(classes + 1))
    assert result.correct == sum(
        row.index(max(row)) == label for row, label in zip(probabilities.tolist(), labels, strict=True)
    )
    assert Fraction(result.size_sum, rows) <= Fraction(result.covered, rows) + classes - 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([0, 0, 3, 2])}, r"\[0, 3\), but row 2 is 3"),
        ({"labels": np.array([0, -1, 1, 2])}, "row 1 is -1"),
        ({"labels": np.array([0.0, 0, 1, 2])}, "float64"),
        ({"labels": np.array([0, 0, 1])}, r"shape \(4,\)"),
        ({"sets": SETS.astype(int)}, "int64 of shape"),
        ({"sets": SETS[:, 0]}, r"bool of shape \(4,\)"),
        ({"sets": SETS[:0]}, "nonempty"),
        ({"sets": SETS.tolist()}, "but got list"),
        ({"probabilities": PROBABILITIES.astype(np.float32)}, "float32"),
        ({"probabilities": PROBABILITIES[:, :2]}, r"shape \(4, 3\), but got float64 of shape \(4, 2\)"),
        ({"probabilities": PROBABILITIES * 2}, r"\[0, 1\], but row 0 holds 1.6"),
        ({"probabilities": PROBABILITIES - 0.1}, "row 2 holds -0.1"),
        ({"probabilities": np.where(PROBABILITIES == 1.0, np.nan, PROBABILITIES)}, "row 2 holds nan"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    arguments = {"sets": SETS, "labels": LABELS, "probabilities": PROBABILITIES} | changes
    with pytest.raises(DataError, match=message):
        evaluate_sets(**arguments)


GOOD = SetEvaluation(
    rows=4,
    classes=2,
    covered=3,
    size_sum=5,
    correct=2,
    empty=1,
    singletons=1,
    size_histogram=(1, 1, 2),
    ece=0.1,
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"covered": 1}, "`covered`.*2 full"),  # one of two full sets would miss its label
        ({"covered": 4}, "`covered`.*3 nonempty"),
        ({"size_sum": 6}, "`size_sum` to be 5"),
        ({"empty": 0}, "`empty` to be 1"),
        ({"singletons": 2}, "`singletons` to be 1"),
        ({"rows": 5}, "`rows` to be 4"),
        ({"rows": 0}, "rows=0"),
        ({"classes": 3}, "4 counts"),
        ({"size_histogram": (1, 4, -1)}, "counts"),
        ({"correct": 5}, "`correct`"),
        ({"correct": -1}, "`correct`"),
        ({"ece": math.nan}, "`ece`"),
        ({"ece": 1.5}, "`ece`"),
    ],
)
def test_counts_that_no_sets_can_have_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataclasses.replace(GOOD, **changes)


def loop_ece(confidences: list[float], correct: list[bool], bins: int) -> float:
    total = 0.0
    for i in range(bins):
        last = i == bins - 1
        members = [
            j
            for j, c in enumerate(confidences)
            if Fraction(i, bins) <= Fraction(c) and (Fraction(c) < Fraction(i + 1, bins) or last)
        ]
        if members:
            accuracy = sum(correct[j] for j in members) / len(members)
            confidence = sum(confidences[j] for j in members) / len(members)
            total += len(members) / len(confidences) * abs(accuracy - confidence)
    return total


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40),
    st.sampled_from([1, 2, 8, 16]),
)
def test_ece_equals_a_loop(rows: list[tuple[float, bool]], bins: int) -> None:
    # Numbers of bins whose edges are exact in binary, so that the loop's exact edges are the same.
    confidences, correct = map(list, zip(*rows, strict=True))
    result = expected_calibration_error(np.array(confidences), np.array(correct), bins=bins)
    assert result == pytest.approx(loop_ece(confidences, correct, bins), abs=1e-12)


def test_ece_uses_15_bins_and_confidence_1_belongs_to_the_last() -> None:
    # 14/15 < .95 < 1: both rows share the last bin, so their errors cancel in part.
    confidences = np.array([1.0, 0.95])
    assert expected_calibration_error(confidences, np.array([False, True])) == pytest.approx(0.475)
    # .93 < 14/15 lies one bin lower, so nothing cancels.
    confidences = np.array([1.0, 0.93])
    assert expected_calibration_error(confidences, np.array([False, True])) == pytest.approx(0.535)


def test_an_edge_belongs_to_the_bin_above_it() -> None:
    confidences = np.array([0.5, 0.25])
    # Bins [0, .5) and [.5, 1]: separate, .5 is right and .25 wrong.
    assert expected_calibration_error(confidences, np.array([True, False]), bins=2) == pytest.approx(0.375)


@pytest.mark.parametrize(
    ("confidences", "correct", "message"),
    [
        (np.zeros(0), np.zeros(0, dtype=bool), "nonempty"),
        (np.zeros(2), np.zeros(2), "`correct`.*float64"),
        (np.zeros(2), np.zeros((2, 1), dtype=bool), "`correct`"),
        (np.zeros(3), np.zeros(2, dtype=bool), "`confidences`"),
        (np.array([0.5, 1.1]), np.zeros(2, dtype=bool), "row 1 holds 1.1"),
        (np.array([0.5, np.nan]), np.zeros(2, dtype=bool), "row 1 holds nan"),
    ],
)
def test_ece_refuses_bad_input(confidences: np.ndarray, correct: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        expected_calibration_error(confidences, correct)


def test_ece_refuses_no_bins() -> None:
    with pytest.raises(UsageError, match="`bins`"):
        expected_calibration_error(np.zeros(1), np.zeros(1, dtype=bool), bins=0)


@pytest.mark.parametrize(
    ("n", "rank", "test_rows", "band"), [(1024, 923, 5000, (4320, 4657)), (256, 232, 1000, (824, 959))]
)
def test_acceptance_band_table(n: int, rank: int, test_rows: int, band: tuple[int, int]) -> None:
    assert conformal_rank(n, "0.1") == rank
    assert acceptance_band(n, rank, test_rows) == band


@pytest.mark.parametrize(("n", "k", "N", "level"), [(19, 18, 50, 1e-3), (99, 90, 200, 0.05), (9, 5, 7, 0.2)])
def test_acceptance_band_cuts_half_the_level_from_each_tail(n: int, k: int, N: int, level: float) -> None:
    low, high = acceptance_band(n, k, N, level)

    # The probability of c covered rows, from binomial coefficients alone.
    def mass(c: int) -> Fraction:
        ways = math.comb(c + k - 1, c) * math.comb(N - c + n - k, N - c)
        return Fraction(ways, math.comb(N + n, N))

    half = Fraction(level) / 2
    assert sum(mass(c) for c in range(low)) < half <= sum(mass(c) for c in range(low + 1))
    assert sum(mass(c) for c in range(high + 1, N + 1)) <= half < sum(mass(c) for c in range(high, N + 1))


def test_acceptance_band_agrees_with_the_mixture_of_binomials() -> None:
    n, k, N = 49, 45, 100
    low, high = acceptance_band(n, k, N, level=0.01)
    p = beta(k, n + 1 - k).ppf((np.arange(4000) + 0.5) / 4000)
    inside = float(np.mean(binom.cdf(high, N, p) - binom.cdf(low - 1, N, p)))
    assert inside == pytest.approx(
        betabinom.cdf(high, N, k, n + 1 - k) - betabinom.cdf(low - 1, N, k, n + 1 - k), abs=1e-4
    )
    assert 0.99 <= inside < 0.995


def test_acceptance_band_of_full_sets() -> None:
    assert acceptance_band(8, 9, 1000) == (1000, 1000)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 1, 10), "calibration_rows"),
        ((9, 0, 10), "rank"),
        ((9, 9, 0), "test_rows"),
        ((9, 9, 9, 0), "level"),
    ],
)
def test_acceptance_band_refuses_bad_input(arguments: tuple[Any, ...], name: str) -> None:
    with pytest.raises(UsageError, match=f"`{name}`"):
        acceptance_band(*arguments)


def test_hoeffding_interval() -> None:
    low, high = hoeffding_interval(4500, 5000)
    half = math.sqrt(math.log(40) / 10000)
    assert (low, high) == (pytest.approx(0.9 - half), pytest.approx(0.9 + half))
    assert hoeffding_interval(4500, 5000, level=0.01)[0] < low
    assert hoeffding_interval(0, 10)[0] == 0.0
    assert hoeffding_interval(10, 10)[1] == 1.0


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_hoeffding_interval_holds_as_often_as_it_says(p: float) -> None:
    N = 60
    covered = [c for c in range(N + 1) if hoeffding_interval(c, N)[0] <= p <= hoeffding_interval(c, N)[1]]
    assert binom(N, p).pmf(covered).sum() >= 0.95
    assert len(covered) < N  # and it is an interval that excludes something


@pytest.mark.parametrize(("covered", "rows", "level"), [(-1, 5, 0.05), (6, 5, 0.05), (0, 0, 0.05), (1, 5, 1.0)])
def test_hoeffding_interval_refuses_bad_input(covered: int, rows: int, level: float) -> None:
    with pytest.raises(UsageError):
        hoeffding_interval(covered, rows, level)


@pytest.mark.parametrize(("n", "alpha"), [(9, "0.1"), (99, "0.41"), (149, "0.18"), (1024, "0.1"), (19, "0.07")])
def test_expected_coverage_lies_between_its_bounds(n: int, alpha: str) -> None:
    expected = Fraction(conformal_rank(n, alpha), n + 1)  # the mean of Beta(k, n + 1 - k)
    assert 1 - Fraction(alpha) <= expected < 1 - Fraction(alpha) + Fraction(1, n + 1)
    assert expected_coverage_upper(alpha, n) == float(1 - Fraction(alpha) + Fraction(1, n + 1))


def test_expected_coverage_upper_refuses_bad_input() -> None:
    with pytest.raises(UsageError, match="`n`"):
        expected_coverage_upper("0.1", 0)
    with pytest.raises(UsageError, match="`alpha`"):
        expected_coverage_upper("1", 10)
