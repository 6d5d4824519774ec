"""What prediction sets are judged by: coverage, set size, accuracy and ECE, on exact counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, UsageError
from .quantile import check_level, describe, parse_alpha
from .sets import check_labels


@dataclass(frozen=True)
class SetEvaluation:
    """Exact counts over `rows` prediction sets; the counts are checked against each other.

    Attributes:
        rows: N.
        classes: K.
        covered: rows whose set holds the true label.
        size_sum: sum of the set sizes.
        correct: rows whose predicted label is the true one.
        empty: sets of no label.
        singletons: sets of one label.
        size_histogram: K + 1 counts, how many sets have 0, 1, ..., K labels.
        ece: expected calibration error of the predicted label's probability.

    Raises:
        DataError: counts that no prediction sets can have, among them those that violate the
            feasibility bound, mean size <= coverage + (K - 1).
    """

    rows: int
    classes: int
    covered: int
    size_sum: int
    correct: int
    empty: int
    singletons: int
    size_histogram: tuple[int, ...]
    ece: float

    def __post_init__(self) -> None:
        """Check every count against the histogram."""
        sizes = self.size_histogram
        if self.rows < 1 or self.classes < 1 or len(sizes) != self.classes + 1 or min(sizes) < 0:
            raise DataError(
                f"Expected `size_histogram` to hold {self.classes + 1} counts of at least one row, "
                f"but got {sizes} for rows={self.rows}."
            )
        expected = {
            "rows": sum(sizes),
            "size_sum": sum(size * count for size, count in enumerate(sizes)),
            "empty": sizes[0],
            "singletons": sizes[1],
        }
        for name, value in expected.items():
            if getattr(self, name) != value:
                raise DataError(
                    f"Expected `{name}` to be {value}, as `size_histogram` says, but got {getattr(self, name)}."
                )
        # Size <= 1[covered] + (K - 1) in every row: only a full set that misses its label breaks it.
        if not sizes[-1] <= self.covered <= self.rows - self.empty:
            raise DataError(
                f"Expected `covered` to lie between the {sizes[-1]} full and the {self.rows - self.empty} "
                f"nonempty sets, but got {self.covered}: the labels do not belong to these sets."
            )
        if not 0 <= self.correct <= self.rows or not 0 <= self.ece <= 1:
            raise DataError(
                f"Expected `correct` to lie in [0, {self.rows}] and `ece` in [0, 1], "
                f"but got {self.correct} and {self.ece}."
            )

    @property
    def coverage(self) -> float:
        """Share of the rows whose set holds the true label."""
        return self.covered / self.rows

    @property
    def mean_set_size(self) -> float:
        """Mean number of labels in a set."""
        return self.size_sum / self.rows

    @property
    def accuracy(self) -> float:
        """Share of the rows whose predicted label is the true one."""
        return self.correct / self.rows


def evaluate_sets(
    sets: NDArray[np.bool_], labels: NDArray[np.integer], probabilities: NDArray[np.float64]
) -> SetEvaluation:
    """Count coverage, set sizes, accuracy and ECE of prediction sets.

    The predicted label is the argmax of the probabilities, ties to the lower index. The feasibility
    bound, mean size <= coverage + (K - 1), is checked on the counts of every evaluation.

    Args:
        sets: (N, K) bool.
        labels: (N,) int, the true labels.
        probabilities: (N, K) float64, the label softmax.

    Raises:
        DataError: no rows or labels, another shape or dtype, a label out of range, or a probability
            outside [0, 1]; the sentence names the first bad row.
    """
    if not isinstance(sets, np.ndarray) or sets.dtype != np.bool_ or sets.ndim != 2 or sets.size == 0:
        raise DataError(f"Expected `sets` to be a nonempty bool array of shape (N, K), but got {describe(sets)}.")
    check_labels("labels", labels, sets.shape)
    _check_unit_interval("probabilities", probabilities, sets.shape)
    rows, classes = sets.shape
    index = np.arange(rows)
    predicted = probabilities.argmax(axis=1)  # (N,)
    correct = predicted == labels  # (N,)
    sizes = sets.sum(axis=1)  # (N,)
    histogram = tuple(int(count) for count in np.bincount(sizes, minlength=classes + 1))
    return SetEvaluation(
        rows=rows,
        classes=classes,
        covered=int(sets[index, labels].sum()),
        size_sum=int(sizes.sum()),
        correct=int(correct.sum()),
        empty=histogram[0],
        singletons=histogram[1],
        size_histogram=histogram,
        ece=expected_calibration_error(probabilities[index, predicted], correct),
    )


def expected_calibration_error(confidences: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = 15) -> float:
    """Mean over rows of |accuracy - mean confidence| of the row's bin.

    The bins are [i / bins, (i + 1) / bins), of equal width; confidence exactly 1.0 belongs to the
    last one.

    Args:
        confidences: (N,) float64 in [0, 1].
        correct: (N,) bool.
        bins: the number of bins.

    Raises:
        DataError: no rows, another shape or dtype, or a confidence outside [0, 1].
        UsageError: fewer than one bin.
    """
    if bins < 1:
        raise UsageError(f"Expected argument `bins` to be at least 1, but got {bins}.")
    if not isinstance(correct, np.ndarray) or correct.dtype != np.bool_ or correct.ndim != 1 or not len(correct):
        raise DataError(f"Expected `correct` to be a nonempty bool array of shape (N,), but got {describe(correct)}.")
    _check_unit_interval("confidences", confidences, correct.shape)
    edges = np.arange(1, bins) / bins  # the inner edges
    which = np.searchsorted(edges, confidences, side="right")  # (N,) in [0, bins)
    gaps = np.bincount(which, weights=correct - confidences, minlength=bins)  # (bins,)
    return float(np.abs(gaps).sum() / len(correct))


def acceptance_band(calibration_rows: int, rank: int, test_rows: int, level: float = 1e-3) -> tuple[int, int]:
    """The covered counts among test rows that a valid quantile yields with probability 1 - level.

    For scores without ties the covered count is BetaBinomial(N, k, n + 1 - k). Each tail outside the
    band has probability at most level / 2: low is the smallest count whose distribution function
    reaches level / 2, high the smallest with at most level / 2 above it, and both belong to the band.
    Ties raise coverage; then only the lower end holds.

    Args:
        calibration_rows: n.
        rank: k; with k > n every set is full, and the band is (N, N).
        test_rows: N.
        level: probability of a count outside the band, in (0, 1).

    Raises:
        UsageError: a number out of range.
    """
    check_level(level)
    for name, value in (("calibration_rows", calibration_rows), ("rank", rank), ("test_rows", test_rows)):
        if value < 1:
            raise UsageError(f"Expected argument `{name}` to be at least 1, but got {value}.")
    if rank > calibration_rows:
        return test_rows, test_rows
    from scipy.stats import betabinom

    counts = betabinom(test_rows, rank, calibration_rows + 1 - rank)
    return int(counts.ppf(level / 2)), int(counts.isf(level / 2))


def hoeffding_interval(covered: int, test_rows: int, level: float = 0.05) -> tuple[float, float]:
    """Interval for this predictor's own population coverage (CPP paper, Theorem 7).

    Given the calibration rows that coverage is Beta(k, n + 1 - k) distributed and need not reach
    1 - alpha, so the interval is not to be compared with 1 - alpha.

    Raises:
        UsageError: no rows, a count outside [0, test_rows], or a level outside (0, 1).
    """
    check_level(level)
    if test_rows < 1 or not 0 <= covered <= test_rows:
        raise UsageError(
            f"Expected argument `covered` to lie in [0, {test_rows}] of at least one row, but got {covered}."
        )
    observed = covered / test_rows
    half = math.sqrt(math.log(2 / level) / (2 * test_rows))
    return max(0.0, observed - half), min(1.0, observed + half)


def expected_coverage_upper(alpha: str, n: int) -> float:
    """1 - alpha + 1 / (n + 1): expected coverage lies below it for distinct scores (CPP paper, Theorem 2).

    Raises:
        UsageError: `alpha` is not a decimal number in (0, 1), or `n` is below 1.
    """
    if n < 1:
        raise UsageError(f"Expected argument `n` to be at least 1, but got {n}.")
    return float(1 - parse_alpha(alpha) + Fraction(1, n + 1))


def _check_unit_interval(name: str, values: Any, shape: tuple[int, ...]) -> None:
    """Refuse anything but a float64 array of this shape with values in [0, 1]; NaN is outside."""
    if not isinstance(values, np.ndarray) or values.dtype != np.float64 or values.shape != shape:
        raise DataError(f"Expected `{name}` to be a float64 array of shape {shape}, but got {describe(values)}.")
    bad = np.argwhere(~((values >= 0) & (values <= 1)))
    if len(bad):
        raise DataError(f"Expected `{name}` to lie in [0, 1], but row {bad[0][0]} holds {values[tuple(bad[0])]}.")
