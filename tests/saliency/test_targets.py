from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from optimum_cpp.errors import DataError, UsageError
from optimum_cpp.saliency import ThresholdBand, all_labels, near_threshold, threshold_band, top_labels, true_labels


def test_true_and_all_labels() -> None:
    assert true_labels(np.array([2, 0, 2])) == ((2,), (0,), (2,))  # type: ignore[arg-type]
    assert all_labels(2, 3) == ((0, 1, 2), (0, 1, 2))


def test_the_smallest_scores_come_first_and_ties_by_label_order() -> None:
    scores = np.array([[3.0, 1.0, 2.0, 1.0], [5.0, 5.0, 5.0, 5.0], [0.0, -1.0, 9.0, -2.0]])
    assert top_labels(scores, 2) == ((1, 3), (0, 1), (3, 1))
    assert top_labels(scores, 4) == ((1, 3, 2, 0), (0, 1, 2, 3), (3, 1, 0, 2))


def test_more_labels_than_there_are() -> None:
    with pytest.raises(UsageError, match="`top_k` to be at most the number of labels, 4, but got 5"):
        top_labels(np.zeros((2, 4)), 5)


def percentile(values: list[float], percent: int) -> float:
    """Linear interpolation between order statistics, the smallest at 0 and the largest at 100."""
    ordered = sorted(values)
    place = Fraction(percent * (len(ordered) - 1), 100)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + float(place - low) * (ordered[high] - ordered[low])


def band_by_hand(scores: Any, labels: list[int], alpha: str) -> tuple[float, float]:
    rank = math.ceil((len(labels) + 1) * (1 - Fraction(alpha)))
    quantile = sorted(float(scores[row][label]) for row, label in enumerate(labels))[rank - 1]
    return quantile, percentile([abs(float(s) - quantile) for row in scores for s in row], 20)


def near_by_hand(scores: Any, quantile: float, width: float) -> tuple[tuple[int, ...], ...]:
    found = []
    for row in scores:
        ranked = sorted((abs(float(score) - quantile), label) for label, score in enumerate(row))
        found.append(tuple(label for d, label in ranked if d <= width)[:8] or (ranked[0][1],))
    return tuple(found)


def test_a_band_worked_out_on_paper() -> None:
    """Four rows at alpha = 0.4: rank ceil(5 * 0.6) = 3 of the true scores 1, 2, 4, 8."""
    scores = np.array([[1.0, 3.0, 4.5], [10.0, 2.0, 4.25], [4.0, 6.0, 0.0], [5.0, 7.0, 8.0]])
    band = threshold_band(scores, [0, 1, 0, 2], "0.4")
    # Distances from 4 in order: 0, .25, .5, 1, 1, 2, 2, 3, 3, 4, 4, 6; place 0.2 * 11 = 2.2.
    assert band == ThresholdBand(4.0, pytest.approx(0.6, abs=1e-15))
    assert near_threshold(scores, band) == ((2,), (2,), (0,), (0,))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("labels, alpha", [(3, "0.1"), (14, "0.1"), (40, "0.25")])
def test_bands_and_labels_equal_a_search_by_hand(seed: int, labels: int, alpha: str) -> None:
    """Scores are rounded to quarters, so that distances tie and stand on the border of the band."""
    generator = np.random.default_rng(seed)
    scores = np.round(generator.gamma(2.0, 3.0, size=(31, labels)) * 4) / 4
    truth = generator.integers(labels, size=31).tolist()
    band = threshold_band(scores, truth, alpha)
    quantile, width = band_by_hand(scores, truth, alpha)
    assert band.quantile == quantile and band.width == pytest.approx(width, abs=1e-12)
    prune = np.round(generator.gamma(2.0, 3.0, size=(50, labels)) * 4) / 4
    found = near_threshold(prune, band)
    assert found == near_by_hand(prune, band.quantile, band.width)
    assert all(1 <= len(row) <= 8 for row in found)


def test_at_most_the_eight_nearest_and_boundary_ties_by_label_order() -> None:
    scores = np.array([[1, 1, 0.5, 1, 1, 1, 1, 1, 0, 1, 1, 1]], dtype=float)
    assert near_threshold(scores, ThresholdBand(0.0, 1.0)) == ((8, 2, 0, 1, 3, 4, 5, 6),)
    # Equally far below and above the quantile is a tie too.
    assert near_threshold(np.array([[3.0, 1.0, 2.5, 1.5]]), ThresholdBand(2.0, 1.0)) == ((2, 3, 0, 1),)


def test_the_border_of_the_band_belongs_to_it() -> None:
    scores = np.array([[2.5, np.nextafter(2.5, 3), 1.5, np.nextafter(1.5, 1)]])
    assert near_threshold(scores, ThresholdBand(2.0, 0.5)) == ((0, 2),)


def test_the_nearest_label_where_none_is_within_the_band() -> None:
    scores = np.array([[9.0, 4.0, 0.0], [5.0, -1.0, 9.0]])
    assert near_threshold(scores, ThresholdBand(2.0, 0.25)) == ((1,), (0,))


def test_the_band_holds_a_fifth_of_all_candidate_labels() -> None:
    scores = np.random.default_rng(0).normal(size=(101, 10))
    band = threshold_band(scores, [0] * 101, "0.1")
    share = (np.abs(scores - band.quantile) <= band.width).mean()
    assert 0.2 <= share < 0.2 + 2 / scores.size


def test_too_few_rows_for_a_finite_quantile() -> None:
    scores = np.arange(16.0).reshape(8, 2)
    with pytest.raises(DataError, match=r"finite quantile at alpha = 0\.1, but 8 are too few"):
        threshold_band(scores, [0] * 8, "0.1")
    assert threshold_band(np.arange(18.0).reshape(9, 2), [0] * 9, "0.1").quantile == 16
