"""The table of figures, against MAPIE, torchmetrics and plain numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from mapie.metrics.classification import classification_coverage_score, classification_mean_width_score
from scipy.stats import betabinom
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_calibration_error

from optimum_cpp.conformal import conformal_quantile, summarise
from optimum_cpp.errors import DataError, UsageError


def scored(rows: int = 500, classes: int = 6, seed: int = 0) -> tuple[Any, Any, Any]:
    """Probabilities, scores -log p and labels drawn from sharper probabilities."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(rows, classes)) * 2
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    sharp = np.exp(1.5 * logits) / np.exp(1.5 * logits).sum(1, keepdims=True)
    labels = (sharp.cumsum(1) < generator.random((rows, 1))).sum(1).clip(0, classes - 1)
    return p, -np.log(p), labels


def test_coverage_and_size_agree_with_mapie() -> None:
    _, scores, labels = scored()
    found = summarise(scores, labels, quantile=1.2, alpha="0.1")
    sets = (scores <= 1.2)[:, :, None]
    assert found["coverage"] == pytest.approx(float(classification_coverage_score(labels, sets)[0]), abs=1e-12)
    assert found["mean_set_size"] == pytest.approx(float(classification_mean_width_score(sets)[0]), abs=1e-12)


def test_accuracy_and_calibration_error_agree_with_torchmetrics() -> None:
    """torchmetrics puts a confidence on a bin's border into the lower bin, ours into the upper: none lies there."""
    p, scores, labels = scored()
    found = summarise(scores, labels, quantile=1.2, alpha="0.1")
    preds, target = torch.tensor(p), torch.tensor(labels)
    assert not np.isin(p.max(1), np.arange(16) / 15).any()
    accuracy = multiclass_accuracy(preds, target, num_classes=6, average="micro")
    ece = multiclass_calibration_error(preds, target, num_classes=6, n_bins=15, norm="l1")
    assert found["accuracy"] == pytest.approx(float(accuracy), abs=1e-6)
    assert found["ece"] == pytest.approx(float(ece), abs=1e-6)


def test_the_rest_is_what_numpy_counts() -> None:
    _, scores, labels = scored()
    groups = np.arange(500) % 3
    found = summarise(scores, labels, quantile=0.3, alpha="0.1", calibration_rows=99, groups=groups)
    sets = scores <= 0.3
    covered = sets[np.arange(500), labels]
    assert found["rows"] == 500
    assert found["empty_rate"] == (sets.sum(1) == 0).mean() > 0
    assert found["singleton_rate"] == (sets.sum(1) == 1).mean() > 0
    assert found["largest_feasible_size"] == pytest.approx(covered.mean() + 5)
    assert found["interval_high"] - found["interval_low"] == pytest.approx(2 * math.sqrt(math.log(40) / 1000))
    per_class = [abs(covered[labels == label].mean() - 0.9) for label in range(6)]
    assert found["class_coverage_gap"] == pytest.approx(np.mean(per_class))
    per_group = [abs(covered[groups == group].mean() - 0.9) for group in range(3)]
    assert found["group_coverage_gap"] == pytest.approx(np.mean(per_group))
    law = betabinom(500, 90, 10)
    low, high = round(found["band_low"] * 500), round(found["band_high"] * 500)
    assert law.cdf(low - 1) < 5e-4 <= law.cdf(low)
    assert law.sf(high) <= 5e-4 < law.sf(high - 1)


def test_a_calibrated_quantile_lies_in_its_band() -> None:
    _, scores, labels = scored(rows=3000)
    true = scores[np.arange(3000), labels]
    quantile = conformal_quantile(true[:999].copy(), "0.2")
    found = summarise(scores[999:], labels[999:], quantile=quantile.value, alpha="0.2", calibration_rows=999)
    assert found["band_low"] <= found["coverage"] <= found["band_high"]


def test_an_infinite_quantile_covers_everything() -> None:
    _, scores, labels = scored()
    found = summarise(scores, labels, quantile=math.inf, alpha="0.1", calibration_rows=3)
    assert (found["coverage"], found["mean_set_size"], found["band_low"]) == (1, 6, 1)


def test_without_empty_sets() -> None:
    _, scores, labels = scored()
    assert summarise(scores, labels, quantile=0.3, alpha="0.1", allow_empty=False)["empty_rate"] == 0


def test_probabilities_in_place_of_scores_are_refused() -> None:
    p, _, labels = scored()
    with pytest.raises(UsageError, match="sums to 1 like probabilities; pass -log p"):
        summarise(p, labels, quantile=0.3, alpha="0.1")


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        ({"quantile": math.nan}, UsageError, "quantile"),
        ({"alpha": "0"}, UsageError, "alpha"),
        ({"groups": np.zeros(3)}, DataError, "groups"),
        ({"calibration_rows": 0}, UsageError, "calibration_rows"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], error: type[Exception], named: str) -> None:
    _, scores, labels = scored()
    with pytest.raises(error, match=named):
        summarise(scores, labels, **({"quantile": 0.3, "alpha": "0.1"} | change))


def test_scores_in_float32_are_refused() -> None:
    _, scores, labels = scored()
    with pytest.raises(DataError, match="float64"):
        summarise(scores.astype(np.float32), labels, quantile=0.3, alpha="0.1")
