"""Have the rows changed since calibration? Tests that compare new rows with the calibration rows, on plain arrays.

Each test is valid while new and calibration rows are exchangeable, and each is a test of two samples. A
test of one sample, whether the conformal p-values of new rows are uniform, is none: one finite calibration
set stands behind all of them, and its chance deviation looks like drift as soon as the new rows are many.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, UsageError
from .quantile import check_scores, check_whole_numbers

# The share of the Simple Jumper's capital that is spread anew before each row, and the bets.
JUMP = 0.01
BETS = (-1.0, 0.0, 1.0)

# Below it a count is too small for the chi-squared approximation.
_LEAST_EXPECTED = 5

# Counting paths for the exact distribution takes time in proportion to the product of the sample sizes.
_MOST_EXACT = 100_000


@dataclass(frozen=True)
class SampleComparison:
    """Outcome of one test.

    Attributes:
        statistic: larger where the samples differ more, except for `coverage_shortfall`.
        p_value: the probability of so extreme a statistic without drift, or an upper bound of it.
    """

    statistic: float
    p_value: float


def compare_values(values: NDArray[np.float64], reference: NDArray[np.float64]) -> SampleComparison:
    """Two-sample Kolmogorov-Smirnov test; equal values make it conservative.

    Args:
        values: (N,) float64, one number for each new row.
        reference: (n,) float64, the same of the calibration rows.

    Returns:
        The largest distance of the two distribution functions with its two-sided p-value.

    Raises:
        DataError: an empty array, another shape or dtype, or a value that is NaN or infinite.
    """
    from scipy.stats import ks_2samp

    _check_values(values)
    _check_values(reference)
    method = "exact" if len(values) * len(reference) <= _MOST_EXACT else "asymp"
    found = ks_2samp(values, reference, method=method)
    return SampleComparison(float(found.statistic), float(found.pvalue))


def conformal_p_values(
    scores: NDArray[np.float64], reference: NDArray[np.float64], *, seed: int
) -> NDArray[np.float64]:
    """Smoothed rank of each new score among the calibration scores and all new scores up to it.

    p_t = (number of larger scores + theta_t * number of equal ones) / (n + t), where a score is among
    its own equals and theta_t is uniform (Vovk, Gammerman and Shafer, *Algorithmic Learning in a Random
    World*, 2005). Because each score joins those that later ones are ranked among, the p-values of
    exchangeable rows are independent and uniform, with or without ties.

    Args:
        scores: (N,) float64, true-label scores of the new rows in the order in which they arrived.
        reference: (n,) float64, the calibration scores.
        seed: of theta; the same seed gives the same p-values.

    Returns:
        (N,) float64 in [0, 1], small where a score is unusually large.

    Raises:
        DataError: an empty array, another shape or dtype, or a score that is NaN or infinite.
    """
    _check_values(scores)
    _check_values(reference)
    theta = np.random.default_rng(seed).random(len(scores))
    seen = sorted(reference.tolist())
    p_values = np.empty(len(scores))
    for row, (score, share) in enumerate(zip(scores.tolist(), theta.tolist(), strict=True)):
        first, behind = bisect_left(seen, score), bisect_right(seen, score)
        seen.insert(behind, score)
        larger, equal = len(seen) - 1 - behind, behind - first + 1
        p_values[row] = (larger + share * equal) / len(seen)
    return p_values


def simple_jumper(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of the Simple Jumper martingale after each p-value (Vovk et al., 2021, Algorithm 1).

    A capital of 1 is spread over three bets: p-values are large, uniform or small, with betting
    functions 1 + e (p - 1/2) for e = 1, 0, -1. Before each row a share J = 0.01 of the capital is
    spread anew, so that a change is found late in the stream too, in either direction. What it cannot
    see is a change of spread alone, which leaves the mean of the p-values where it was. Source: "Retrain or
    not retrain: conformal test martingales for change-point detection", arXiv 2102.10439.

    Args:
        p_values: (N,) float64 in [0, 1], independent and uniform while rows are exchangeable.

    Returns:
        (N,) float64, natural logarithm of the capital.
    """
    shares = [1 / len(BETS)] * len(BETS)
    path = np.empty(len(p_values))
    log_capital = 0.0
    for row, p_value in enumerate(p_values.tolist()):
        spread = [(1 - JUMP) * share + JUMP / len(BETS) for share in shares]
        grown = [share * (1 + bet * (p_value - 0.5)) for share, bet in zip(spread, BETS, strict=True)]
        growth = sum(grown)
        # Shares of the capital, not the capital itself, which would overflow on a long stream.
        shares = [value / growth for value in grown]
        log_capital += math.log(growth)
        path[row] = log_capital
    return path


def martingale_test(scores: NDArray[np.float64], reference: NDArray[np.float64], *, seed: int) -> SampleComparison:
    """Conformal test martingale (Simple Jumper) of true-label scores, judged by Ville's inequality.

    The chance that the martingale ever reaches 1 / level is at most level while rows are exchangeable, so
    one over its largest value is a valid p-value, whenever one looks.

    Args:
        scores: (N,) float64, true-label scores of the new rows in the order in which they arrived: rows
            that somebody sorted are not exchangeable, and found out.
        reference: (n,) float64, the calibration scores.
        seed: of the random ranks among ties.

    Returns:
        The natural logarithm of the largest value, at least 0 since the martingale begins at 1.

    Raises:
        DataError: an empty array, another shape or dtype, or a score that is NaN or infinite.
    """
    path = simple_jumper(conformal_p_values(scores, reference, seed=seed))
    largest = max(0.0, float(path.max()))
    return SampleComparison(largest, math.exp(-largest))


def compare_set_sizes(sizes: NDArray[np.integer], reference: NDArray[np.integer]) -> SampleComparison:
    """Pearson's chi-squared test of homogeneity of set sizes, without continuity correction.

    From the smallest size on, neighbouring sizes share a bin until the bin's expected count is at least 5
    in both samples; what is left at the end joins the last bin. Expected counts depend on the two samples
    together only, so the merging favours neither. With a single bin there is nothing to compare:
    statistic 0, p-value 1.

    Args:
        sizes: (N,) int, set sizes of the new rows.
        reference: (n,) int, set sizes of the calibration rows at the same quantile.

    Raises:
        DataError: no rows, arrays that are not whole numbers, or a negative size.
    """
    from scipy.stats import chi2_contingency

    for name, values in (("sizes", sizes), ("reference", reference)):
        check_whole_numbers(name, values, (np.size(values),))
        if not len(values) or values.min() < 0:
            raise DataError(f"Expected `{name}` to hold set sizes of at least one row, but got {values!r:.60}.")
    classes = int(max(sizes.max(), reference.max())) + 1
    counts = np.stack([np.bincount(values, minlength=classes) for values in (sizes, reference)])  # (2, sizes)
    merged = _merge_sparse(counts)
    if merged.shape[1] == 1:
        return SampleComparison(0.0, 1.0)
    found = chi2_contingency(merged, correction=False)
    return SampleComparison(float(found.statistic), float(found.pvalue))


def coverage_shortfall(covered: int, rows: int, *, calibration_rows: int, rank: int) -> SampleComparison:
    """Is the covered count too small? Lower tail of BetaBinomial(N, k, n + 1 - k); ties make it conservative.

    Args:
        covered: new rows whose set holds the true label.
        rows: N.
        calibration_rows: n.
        rank: k; with k > n every set is full, and the p-value is 1.

    Returns:
        The share of rows that are covered.

    Raises:
        UsageError: no rows, a count outside [0, rows], or a rank below 1.
    """
    if rows < 1 or not 0 <= covered <= rows:
        raise UsageError(f"Expected argument `covered` to lie in [0, {rows}] of at least one row, but got {covered}.")
    if calibration_rows < 1 or rank < 1:
        raise UsageError(
            f"Expected `calibration_rows` and `rank` to be at least 1, but got {calibration_rows} and {rank}."
        )
    if rank > calibration_rows:
        return SampleComparison(covered / rows, 1.0)
    from scipy.stats import betabinom

    return SampleComparison(covered / rows, float(betabinom.cdf(covered, rows, rank, calibration_rows + 1 - rank)))


def _merge_sparse(counts: NDArray[np.integer]) -> NDArray[np.integer]:
    """(2, bins) counts whose expected counts are large enough, of (2, sizes) counts; at least one bin."""
    rows = counts.sum(axis=1)
    bins: list[Any] = []
    current = np.zeros(2, dtype=counts.dtype)
    for column in counts.T:
        current = current + column
        # Expected count of the smaller sample: its share of all rows times the rows in this bin.
        if int(current.sum()) * int(rows.min()) >= _LEAST_EXPECTED * int(rows.sum()):
            bins.append(current)
            current = np.zeros_like(current)
    if not bins:
        return np.asarray(counts.sum(axis=1, keepdims=True))
    bins[-1] = bins[-1] + current
    return np.stack(bins, axis=1)


def _check_values(values: NDArray[np.float64]) -> None:
    check_scores(values, ndim=1)
    if not len(values):
        raise DataError("Expected `scores` to hold at least one row, but it is empty.")
