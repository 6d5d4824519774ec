"""Prediction sets: the labels whose score is at most the quantile (CPP paper, Eq. 3)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, UsageError
from .quantile import check_scores, check_whole_numbers


def prediction_sets(
    scores: NDArray[np.float64],
    quantile: float,
    *,
    allow_empty: bool = True,
    top_labels: NDArray[np.integer] | None = None,
) -> NDArray[np.bool_]:
    """C(x) = {y : s(x, y) <= quantile}, without a tolerance (CPP paper, Eq. 3).

    Args:
        scores: (N, K) float64, the nonconformity score of every label.
        quantile: a finite number, or +inf for sets of all labels.
        allow_empty: keep empty sets; otherwise each of them is given the row's top label, which
            never lowers coverage.
        top_labels: (N,) int, the predicted labels, used when `allow_empty` is false. The default is
            the label with the smallest score, ties to the lower index.

    Returns:
        (N, K) bool, true where a label belongs to the set.

    Raises:
        DataError: scores that are not a float64 array of shape (N, K) or not finite, no labels, or
            top labels of another shape, of another type or out of range.
        UsageError: a quantile that is NaN, -inf or not a Python or float64 number.
    """
    check_scores(scores, ndim=2)
    if scores.shape[1] == 0:
        raise DataError("Expected `scores` to hold at least one label, but its shape is (N, 0).")
    # np.float32 is no subclass of float: a quantile rounded to it would not be the calibrated one.
    if not isinstance(quantile, (float, int)) or math.isnan(quantile) or quantile == -math.inf:
        raise UsageError(f"Expected argument `quantile` to be a float64 number or inf, but got {quantile!r}.")
    sets: NDArray[np.bool_] = scores <= quantile  # (N, K)
    if not allow_empty:
        top = scores.argmin(axis=1) if top_labels is None else top_labels
        check_labels("top_labels", top, scores.shape)
        empty = np.flatnonzero(~sets.any(axis=1))
        sets[empty, top[empty]] = True
    return sets


def check_labels(name: str, labels: NDArray[np.integer], shape: tuple[int, ...]) -> None:
    """Refuse anything but one label in [0, K) for each of the N rows of an (N, K) array.

    Raises:
        DataError: the wrong type or shape, or the first row whose label is out of range.
    """
    rows, classes = shape
    check_whole_numbers(name, labels, (rows,))
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(bad):
        raise DataError(f"Expected `{name}` to lie in [0, {classes}), but row {bad[0]} is {labels[bad[0]]}.")
