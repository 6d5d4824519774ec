"""Drift tests: against scipy and hand computations, and how often they alarm when nothing has changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import betabinom, chi2, kstest, kstwo

from optimum_cpp.conformal import (
    SampleComparison,
    compare_set_sizes,
    compare_values,
    conformal_p_values,
    coverage_shortfall,
    martingale_test,
    simple_jumper,
)
from optimum_cpp.errors import DataError, UsageError

# With a rate of exactly 5 % the alarms among 1500 draws exceed 1.5 times 5 % with probability 1e-5; with twice
# that rate they stay below it with probability 1e-3.
DRAWS, LEVEL = 1500, 0.05
Comparison = Callable[[Any, Any], SampleComparison]


def alarm_rate(compare: Comparison, draw: Callable[[np.random.Generator, int], Any], n: int, rows: int) -> float:
    """Share of draws in which exchangeable samples look different at LEVEL."""
    generator = np.random.default_rng(n + rows)
    alarms = 0
    for _ in range(DRAWS):
        together = draw(generator, n + rows)
        alarms += compare(together[n:], together[:n]).p_value <= LEVEL
    return alarms / DRAWS


def continuous(generator: np.random.Generator, rows: int) -> Any:
    return generator.exponential(size=rows)


def tied(generator: np.random.Generator, rows: int) -> Any:
    return np.round(generator.exponential(size=rows), 1)


def sizes(generator: np.random.Generator, rows: int) -> Any:
    return generator.geometric(0.45, size=rows).clip(max=9) - 1


@pytest.mark.parametrize(("n", "rows"), [(60, 100), (1000, 300)])
@pytest.mark.parametrize(
    ("compare", "draw"),
    [
        (compare_values, continuous),
        (compare_values, tied),
        (lambda new, old: martingale_test(new, old, seed=0), continuous),
        (lambda new, old: martingale_test(new, old, seed=0), tied),
        (compare_set_sizes, sizes),
    ],
    ids=["ks", "ks-tied", "martingale", "martingale-tied", "sizes"],
)
def test_false_alarms_are_at_most_half_as_many_again_as_the_level(
    compare: Comparison, draw: Callable[[np.random.Generator, int], Any], n: int, rows: int
) -> None:
    assert alarm_rate(compare, draw, n, rows) <= 1.5 * LEVEL


def test_a_test_of_one_sample_would_alarm_far_too_often() -> None:
    """Why the two-sample test is used: against a frozen calibration set the ranks are not uniform."""

    def one_sample(new: Any, old: Any) -> SampleComparison:
        ranks = 1 - np.searchsorted(np.sort(old), new) / (len(old) + 1)
        return SampleComparison(0.0, float(kstest(ranks, "uniform").pvalue))

    assert alarm_rate(one_sample, continuous, 200, 1000) > 4 * LEVEL


@pytest.mark.parametrize("n", [60, 1000])
def test_false_alarms_of_coverage(n: int) -> None:
    """The covered count of a valid quantile is beta-binomial; drawn from uniform scores."""
    generator, rank, alarms = np.random.default_rng(n), math.ceil(0.9 * (n + 1)), 0
    for _ in range(DRAWS):
        quantile = np.sort(generator.random(n))[rank - 1]
        covered = int((generator.random(300) <= quantile).sum())
        alarms += coverage_shortfall(covered, 300, calibration_rows=n, rank=rank).p_value <= LEVEL
    assert alarms / DRAWS <= 1.5 * LEVEL


def test_the_distance_is_that_of_the_distribution_functions() -> None:
    found = compare_values(np.array([1.0, 4.0, 6.0]), np.array([2.0, 3.0, 5.0, 7.0]))
    # Just below 4: one of three against two of four.
    assert found.statistic == pytest.approx(max(abs(1 / 3 - 0), abs(1 / 3 - 2 / 4), abs(1 - 3 / 4)))
    # All 35 orders are equally likely: this many have a distance as large.
    assert found.p_value * math.comb(7, 3) == pytest.approx(round(found.p_value * math.comb(7, 3)), abs=1e-6)


def test_large_samples_use_the_limit() -> None:
    generator = np.random.default_rng(1)
    new, old = generator.normal(0.1, 1, 2000), generator.normal(size=1000)
    found = compare_values(new, old)
    assert found.p_value == pytest.approx(float(kstwo.sf(found.statistic, round(2000 * 1000 / 3000))), rel=1e-6)


def test_p_values_are_ranks_among_all_earlier_rows() -> None:
    reference = np.array([1.0, 2.0, 2.0, 5.0])
    scores = np.array([2.0, 9.0, 0.0, 2.0])
    theta = np.random.default_rng(3).random(4)
    expected = [
        (1 + theta[0] * 3) / 5,  # 5 is larger; 2, 2 and itself are equal
        (0 + theta[1] * 1) / 6,
        (6 + theta[2] * 1) / 7,
        (2 + theta[3] * 4) / 8,  # 5 and 9 are larger; three earlier twos and itself
    ]
    assert conformal_p_values(scores, reference, seed=3) == pytest.approx(expected)


def test_p_values_of_exchangeable_rows_are_uniform_and_independent() -> None:
    generator = np.random.default_rng(0)
    found = np.array([conformal_p_values(tied(generator, 5), tied(generator, 20), seed=seed) for seed in range(4000)])
    assert all(kstest(found[:, row], "uniform").pvalue > 1e-3 for row in range(5))
    correlations = np.corrcoef(found.T)[np.triu_indices(5, 1)]
    assert np.abs(correlations).max() < 4 / math.sqrt(4000)


def test_the_jumper_is_what_a_hand_computes() -> None:
    p_values = [0.1, 0.9, 0.5, 0.02]
    capital = {-1: 1 / 3, 0: 1 / 3, 1: 1 / 3}
    totals = []
    for p in p_values:
        total = sum(capital.values())
        capital = {e: (0.99 * share + 0.01 / 3 * total) * (1 + e * (p - 0.5)) for e, share in capital.items()}
        totals.append(sum(capital.values()))
    assert np.exp(simple_jumper(np.array(p_values))) == pytest.approx(totals)


def test_the_jumpers_expectation_is_one() -> None:
    """A martingale: over uniform p-values its mean stays at 1."""
    p_values = np.random.default_rng(0).random((20000, 6))
    values = np.exp([simple_jumper(row)[-1] for row in p_values])
    assert values.mean() == pytest.approx(1, abs=4 * values.std() / math.sqrt(20000))


def test_a_long_stream_does_not_overflow() -> None:
    assert np.isfinite(simple_jumper(np.full(20000, 0.001))).all()


def test_sparse_sizes_are_merged_until_five_are_expected() -> None:
    old = np.repeat([0, 1, 2, 7], [1, 40, 8, 1])
    new = np.repeat([1, 2, 9], [20, 25, 5])
    # Expected counts in each sample are half of both: sizes 0 and 1 (61), 2 (33); 7 and 9 (6) join the latter.
    table = np.array([[20, 30], [41, 9]])
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / 100
    statistic = ((table - expected) ** 2 / expected).sum()
    found = compare_set_sizes(new, old)
    assert found.statistic == pytest.approx(statistic)
    assert found.p_value == pytest.approx(float(chi2.sf(statistic, 1)))


def test_sizes_that_cannot_be_compared_are_no_drift() -> None:
    assert compare_set_sizes(np.array([3]), np.array([1, 1, 1])) == SampleComparison(0.0, 1.0)


def test_the_coverage_test_is_the_lower_tail() -> None:
    found = coverage_shortfall(80, 100, calibration_rows=99, rank=90)
    assert found == SampleComparison(0.8, float(betabinom.cdf(80, 100, 90, 10)))
    assert coverage_shortfall(100, 100, calibration_rows=5, rank=6).p_value == 1


@pytest.mark.parametrize("seed", range(5))
def test_changes_are_found(seed: int) -> None:
    generator = np.random.default_rng(seed)
    old, new = generator.exponential(size=500), generator.exponential(1.6, size=300)
    assert compare_values(new, old).p_value < 0.01
    assert martingale_test(new * 2, old, seed=seed).p_value < 0.01
    assert martingale_test(new * 0.3, old, seed=seed).p_value < 0.01
    assert compare_set_sizes(sizes(generator, 300) + 1, sizes(generator, 500)).p_value < 0.01
    assert coverage_shortfall(240, 300, calibration_rows=500, rank=451).p_value < 0.01


def test_a_change_late_in_a_stream_is_found() -> None:
    generator = np.random.default_rng(0)
    stream = np.concatenate([generator.exponential(size=1000), generator.exponential(2.5, size=200)])
    assert martingale_test(stream, generator.exponential(size=500), seed=0).p_value < 0.01


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (np.array([np.nan]), np.array([1.0])),
        (np.array([1.0]), np.array([np.inf])),
        (np.array([]), np.array([1.0])),
        (np.array([1.0], dtype=np.float32), np.array([1.0])),
    ],
)
@pytest.mark.parametrize("compare", [compare_values, lambda new, old: martingale_test(new, old, seed=0)])
def test_bad_values_are_refused(compare: Comparison, new: Any, old: Any) -> None:
    with pytest.raises(DataError, match="scores"):
        compare(new, old)


@pytest.mark.parametrize("new", [np.array([], dtype=int), np.array([-1]), np.array([0.5]), [1]])
def test_bad_sizes_are_refused(new: Any) -> None:
    with pytest.raises(DataError, match="`sizes`"):
        compare_set_sizes(new, np.array([1]))


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="covered"):
        coverage_shortfall(11, 10, calibration_rows=9, rank=5)
