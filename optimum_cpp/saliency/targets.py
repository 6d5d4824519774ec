"""Which labels of an example the saliency differentiates (CPP paper, section 4; method: candidate labels)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..conformal import conformal_quantile, conformal_rank
from ..errors import DataError, UsageError

Scores = npt.NDArray[np.float64]
Targets = tuple[tuple[int, ...], ...]

BAND_PERCENTILE = 20
MOST_IN_BAND = 8


@dataclass(frozen=True)
class ThresholdBand:
    """Labels whose dense score lies this near the dense provisional quantile.

    Attributes:
        quantile: conformal quantile of the dense true-label scores on val_cal.
        width: largest distance from it that counts as near.
    """

    quantile: float
    width: float


def true_labels(labels: Sequence[int]) -> Targets:
    """Each example's own label."""
    return tuple((int(label),) for label in labels)


def all_labels(rows: int, labels: int) -> Targets:
    """Every label of the label space, for each of the rows."""
    return (tuple(range(labels)),) * rows


def top_labels(scores: Scores, count: int) -> Targets:
    """The labels with the smallest scores, ties by label order.

    Args:
        scores: (N, K) dense scores of the prune role.
        count: labels for each example.

    Raises:
        UsageError: fewer labels than that.
    """
    if count > scores.shape[1]:
        raise UsageError(
            f"Expected argument `top_k` to be at most the number of labels, {scores.shape[1]}, but got {count}."
        )
    return tuple(_nearest(row, count) for row in scores)


def threshold_band(scores: Scores, labels: Sequence[int], alpha: str) -> ThresholdBand:
    """The band around the dense provisional quantile that holds 20 % of all candidate labels of val_cal.

    Args:
        scores: (M, K) dense scores of val_cal.
        labels: (M,) its true labels.
        alpha: allowed miscoverage, a decimal string.

    Raises:
        DataError: too few rows for a finite quantile.
    """
    check_threshold(len(scores), alpha)
    true_scores = scores[np.arange(len(scores)), np.asarray(labels)]
    quantile = conformal_quantile(true_scores, alpha).value
    width = float(np.percentile(np.abs(scores - quantile), BAND_PERCENTILE))
    return ThresholdBand(float(quantile), width)


def check_threshold(rows: int, alpha: str) -> None:
    """Refuse so few val_cal rows that their quantile is infinite."""
    if conformal_rank(rows, alpha) > rows:
        raise DataError(
            f"Expected enough val_cal rows for a finite quantile at alpha = {alpha}, but {rows} are too few for "
            "a threshold; use more --val_rows or another --saliency."
        )


def near_threshold(scores: Scores, band: ThresholdBand) -> Targets:
    """The labels within the band, at most the eight nearest; the nearest one where none is. Ties by label order.

    Args:
        scores: (N, K) dense scores of the prune role.
        band: from `threshold_band`.
    """
    distances = np.abs(scores - band.quantile)
    counts = (distances <= band.width).sum(axis=1).clip(1, MOST_IN_BAND)
    return tuple(_nearest(row, int(count)) for row, count in zip(distances, counts, strict=True))


def _nearest(distances: Scores, count: int) -> tuple[int, ...]:
    return tuple(int(label) for label in np.argsort(distances, kind="stable")[:count])
