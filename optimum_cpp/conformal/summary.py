"""All figures of prediction sets from their scores, as one flat table for loggers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ..errors import UsageError
from .conditional import coverage_gap, size_stratified_violation
from .metrics import acceptance_band, evaluate_sets, hoeffding_interval
from .quantile import check_scores, conformal_rank
from .sets import check_labels, prediction_sets


def summarise(
    scores: NDArray[np.float64],
    labels: NDArray[np.integer],
    *,
    quantile: float,
    alpha: str,
    calibration_rows: int | None = None,
    groups: NDArray[Any] | None = None,
    allow_empty: bool = True,
) -> dict[str, float]:
    """Everything that sets at one quantile are judged by.

    Label probabilities are softmax(-score), which are those of every score of this package; the predicted
    label is the one with the smallest score, ties to the lower index.

    Args:
        scores: (N, K) float64 nonconformity scores; small means likely.
        labels: (N,) int, the true labels.
        quantile: a finite number, or +inf for sets of all labels.
        alpha: allowed miscoverage, a decimal string.
        calibration_rows: n behind the quantile, for the band that a valid quantile keeps to in 99.9 % of draws.
        groups: (N,) subgroups, for their coverage gap.
        allow_empty: keep empty sets; otherwise they hold the predicted label.

    Returns:
        `coverage`, `mean_set_size`, `accuracy`, `ece`, `singleton_rate`, `empty_rate`, `rows`;
        `largest_feasible_size` (coverage + K - 1, which no sets can exceed); `interval_low` and
        `interval_high` (95 %, Hoeffding); `class_coverage_gap` and `size_stratified_violation`;
        `band_low` and `band_high` with `calibration_rows`; `group_coverage_gap` with `groups`.

    Raises:
        DataError: no rows, another shape or dtype, NaN, or a label out of range.
        UsageError: probabilities in place of scores, a quantile of NaN, or an alpha outside (0, 1).
    """
    check_scores(scores, ndim=2)
    check_labels("labels", labels, scores.shape)
    _refuse_probabilities(scores)
    sets = prediction_sets(scores, quantile, allow_empty=allow_empty)  # (N, K)
    found = evaluate_sets(sets, labels, softmax(-scores, axis=1))
    covered = sets[np.arange(found.rows), labels]  # (N,)
    low, high = hoeffding_interval(found.covered, found.rows)
    figures = {
        "coverage": found.coverage,
        "mean_set_size": found.mean_set_size,
        "accuracy": found.accuracy,
        "ece": found.ece,
        "singleton_rate": found.singletons / found.rows,
        "empty_rate": found.empty / found.rows,
        "rows": float(found.rows),
        "largest_feasible_size": found.coverage + found.classes - 1,
        "interval_low": low,
        "interval_high": high,
        "class_coverage_gap": coverage_gap(covered, labels, alpha),
        "size_stratified_violation": size_stratified_violation(covered, sets.sum(axis=1), alpha),
    }
    if calibration_rows is not None:
        band = acceptance_band(calibration_rows, conformal_rank(calibration_rows, alpha), found.rows)
        figures |= {"band_low": band[0] / found.rows, "band_high": band[1] / found.rows}
    if groups is not None:
        figures["group_coverage_gap"] = coverage_gap(covered, groups, alpha)
    return figures


def _refuse_probabilities(scores: NDArray[np.float64]) -> None:
    """Sets of probabilities at most a quantile would hold the least likely labels."""
    if scores.shape[1] > 1 and (scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, rtol=0, atol=1e-6):
        raise UsageError(
            "Expected argument `scores` to hold nonconformity scores, which are small for likely labels, but every "
            "row sums to 1 like probabilities; pass -log p."
        )
