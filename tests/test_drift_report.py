"""The whole report on simulated classifiers: its level is kept, and what it says follows from its numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optimum_cpp.conformal import conformal_quantile, prediction_sets
from optimum_cpp.drift_report import DriftReport, Sample, judge
from optimum_cpp.errors import UsageError

CLASSES = 6


def rows_of(generator: np.random.Generator, rows: int, sharpness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """(N, K) scores -log p and labels drawn from sharpened probabilities; 1 means calibrated ones."""
    logits = generator.normal(size=(rows, CLASSES)) * 2
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    true = np.exp(sharpness * logits)
    labels = ((true / true.sum(1, keepdims=True)).cumsum(1) < generator.random((rows, 1))).sum(1)
    return -log_p, labels.clip(0, CLASSES - 1)


def sample_of(scores: np.ndarray, labels: np.ndarray, quantile: float, labelled: bool) -> Sample:
    sets = prediction_sets(scores, quantile)
    own = np.arange(len(labels))
    unlabelled = Sample(np.exp(-scores).max(1), sets.sum(1))
    if not labelled:
        return unlabelled
    return Sample(
        *(unlabelled.top_probabilities, unlabelled.set_sizes, scores[own, labels]), int(sets[own, labels].sum())
    )


def simulated(seed: int, n: int, rows: int, labelled: bool, level: str = "0.05", sharpness: float = 1.0) -> DriftReport:
    """As in deployment: the calibration rows make the quantile at which all sets are formed."""
    generator = np.random.default_rng(seed)
    scores, labels = rows_of(generator, n)
    quantile = conformal_quantile(scores[np.arange(n), labels], "0.1")
    reference = sample_of(scores, labels, quantile.value, labelled=True)
    new = sample_of(*rows_of(generator, rows, sharpness), quantile.value, labelled)
    return judge(new, reference, rank=quantile.k, level=level, seed=seed)


@pytest.mark.parametrize(("n", "rows"), [(60, 100), (1000, 300)])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_report_without_drift_alarms_at_most_half_as_often_again_as_its_level(
    n: int, rows: int, labelled: bool
) -> None:
    """Exactly 5 % among 1000 reports would exceed 75 alarms with probability 3e-4."""
    alarms = sum(simulated(seed, n, rows, labelled).alarm for seed in range(1000))
    assert alarms / 1000 <= 1.5 * 0.05


def test_the_level_is_shared_out_evenly() -> None:
    report = simulated(0, 60, 100, labelled=True)
    assert [test.name for test in report.tests] == [
        "scores", "martingale", "coverage", "top_probabilities", "set_sizes",
    ]  # fmt: skip
    assert {test.level for test in report.tests} == {0.01}
    unlabelled = simulated(0, 60, 100, labelled=False)
    assert [test.name for test in unlabelled.tests] == ["top_probabilities", "set_sizes"]
    assert {test.level for test in unlabelled.tests} == {0.025}
    assert unlabelled.coverage is unlabelled.band is unlabelled.covered is None


@pytest.mark.parametrize("sharpness", [0.0, 0.3])
def test_labels_that_no_longer_fit_are_found(sharpness: float) -> None:
    report = simulated(0, 500, 300, labelled=True, level="0.01", sharpness=sharpness)
    assert report.alarm
    found = {test.name for test in report.tests if test.alarm}
    assert {"scores", "martingale", "coverage"} <= found
    assert report.covered is not None and report.band is not None and report.covered < report.band[0]
    assert "optimum-cli cpp calibrate" in report.summary() and report.summary().count("DRIFT") == len(found)


def test_the_band_is_what_the_coverage_test_accepts() -> None:
    for seed in range(40):
        report = simulated(seed, 60, 100, labelled=True, level="0.5", sharpness=0.6)
        coverage = next(test for test in report.tests if test.name == "coverage")
        assert report.covered is not None and report.band is not None
        assert coverage.alarm == (report.covered < report.band[0])


def test_what_a_report_says_as_plain_values() -> None:
    report = simulated(3, 60, 100, labelled=True)
    plain = report.to_dict()
    assert plain["rows"] == 100 and plain["calibration_rows"] == 60 and plain["alarm"] == report.alarm
    assert plain["coverage"] == report.coverage == report.covered / 100  # type: ignore[operator]
    assert len(plain["tests"]) == 5 and not math.isnan(plain["tests"][0]["p_value"])
    assert "no proof" in report.summary() or report.alarm


@pytest.mark.parametrize("level", ["0", "1", "-0.1", "a"])
def test_a_level_outside_its_range_is_refused(level: str) -> None:
    with pytest.raises(UsageError, match="level"):
        simulated(0, 60, 100, labelled=True, level=level)
