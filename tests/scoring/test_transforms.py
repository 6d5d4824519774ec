from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from optimum_cpp.errors import DataError, UsageError
from optimum_cpp.registry import SCORES
from optimum_cpp.scoring import Score, ScoreTransform, fit_transform


@pytest.fixture
def log_p() -> Any:
    return np.random.default_rng(0).normal(-12, 4, size=(40, 5))


@pytest.fixture
def labels(log_p: Any) -> Any:
    """Right with probability 0.6, so that the fitted temperature is finite."""
    generator = np.random.default_rng(1)
    random = generator.integers(0, 5, size=len(log_p))
    return np.where(generator.random(len(log_p)) < 0.6, log_p.argmax(1), random)


def log_softmax(rows: Any) -> Any:
    return np.array([[value - math.log(sum(math.exp(other) for other in row)) for value in row] for row in rows])


def test_nll_is_not_renormalised(log_p: Any) -> None:
    transform = fit_transform("nll", "2", log_p, np.zeros(40, dtype=np.int64))
    np.testing.assert_array_equal(transform.nonconformity(log_p), -log_p)
    assert transform.prior is None


@pytest.mark.parametrize("temperature, tau", [("none", 1.0), ("1", 1.0), ("2.5", 2.5), ("0.5", 0.5)])
def test_label_nll(log_p: Any, temperature: str, tau: float) -> None:
    transform = fit_transform("label_nll", temperature, log_p, np.zeros(40, dtype=np.int64))
    assert transform == ScoreTransform("label_nll", tau, None)
    np.testing.assert_allclose(transform.nonconformity(log_p), -log_softmax(log_p / tau), atol=1e-12)


@pytest.mark.parametrize("temperature, tau", [("none", 1.0), ("3", 3.0)])
def test_prior_nll(log_p: Any, temperature: str, tau: float) -> None:
    validation, other = log_p[:30], log_p[30:]
    transform = fit_transform("prior_nll", temperature, validation, np.zeros(30, dtype=np.int64))
    prior = np.array([sum(column) / 30 for column in validation.T])
    np.testing.assert_allclose(transform.prior, prior, rtol=1e-12)
    np.testing.assert_allclose(transform.nonconformity(other), -log_softmax((other - prior) / tau), atol=1e-12)


def test_the_prior_needs_no_labels(log_p: Any) -> None:
    first = fit_transform("prior_nll", "none", log_p, np.zeros(40, dtype=np.int64))
    second = fit_transform("prior_nll", "none", log_p, np.full(40, 4, dtype=np.int64))
    assert first == second


@pytest.mark.parametrize("score", ["nll", "label_nll", "prior_nll"])
def test_probabilities_are_the_label_softmax(log_p: Any, score: str) -> None:
    transform = fit_transform(score, "2", log_p, np.zeros(40, dtype=np.int64))
    prior = log_p.mean(0) if score == "prior_nll" else 0
    exponential = np.exp((log_p - prior) / 2)
    np.testing.assert_allclose(transform.probabilities(log_p), exponential / exponential.sum(1, keepdims=True))


def test_far_apart_log_probabilities_neither_overflow_nor_saturate() -> None:
    log_p = np.array([[-1.0, -2000.0], [-5000.0, -5000.0]])
    scores = ScoreTransform("label_nll").nonconformity(log_p)
    np.testing.assert_allclose(scores, [[0, 1999], [math.log(2)] * 2], atol=1e-12)


def test_sure_rows_do_not_tie_at_zero() -> None:
    """What is left to the others is below the rounding of 1, and still orders the rows."""
    log_p = np.array([[-1.0, -41.0, -60.0], [-51.0, -1.0, -70.0], [-1.0, -1.0 - 500.0, -600.0]])
    scores = ScoreTransform("label_nll").nonconformity(log_p)
    np.testing.assert_allclose(scores[[0, 1, 2], [0, 1, 0]], np.exp([-40.0, -50.0, -500.0]), rtol=1e-7, atol=0)


@pytest.mark.parametrize("score", ["label_nll", "prior_nll"])
@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0])
def test_the_fitted_temperature_minimises_the_likelihood(log_p: Any, labels: Any, score: str, scale: float) -> None:
    log_p = log_p * scale
    fitted = fit_transform(score, "fit", log_p, labels)
    prior = log_p.mean(0) if score == "prior_nll" else 0

    def loss(tau: float) -> float:
        return float(-log_softmax((log_p - log_p.max() - prior) / tau)[np.arange(40), labels].mean())

    grid = np.exp(np.linspace(math.log(fitted.temperature) - 2, math.log(fitted.temperature) + 2, 401))
    losses = [loss(tau) for tau in grid]
    assert fitted.temperature == pytest.approx(grid[np.argmin(losses)], rel=0.011)
    assert loss(fitted.temperature) <= min(losses) + 1e-9


def test_a_temperature_at_which_every_label_is_equally_likely_is_the_bound() -> None:
    wrong = fit_transform("label_nll", "fit", np.array([[0.0, -1.0]]), np.array([1]))
    assert wrong.temperature == pytest.approx(1e3, rel=1e-3)


def test_fitting_to_infinite_likelihoods_is_an_error() -> None:
    with pytest.raises(DataError, match="finite likelihood on val_cal"):
        fit_transform("label_nll", "fit", np.array([[0.0, -np.inf]]), np.array([1]))


def test_an_unknown_score_lists_those_there_are() -> None:
    with pytest.raises(UsageError, match="score among nll, label_nll, prior_nll, but got 'lnl'"):
        fit_transform("lnl", "none", np.zeros((2, 2)), np.zeros(2, dtype=np.int64))


def test_a_score_of_ones_own(log_p: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCORES, "_entries", dict(SCORES._entries))

    def one_minus_probability(log_p: Any, log_softmax: Any) -> Any:
        return 1 - np.exp(log_softmax)

    SCORES.register("one_minus_p")(Score(uses_prior=True, nonconformity=one_minus_probability))
    transform = fit_transform("one_minus_p", "none", log_p, np.zeros(40, dtype=np.int64))
    expected = 1 - np.exp(log_softmax(log_p - log_p.mean(0)))
    np.testing.assert_allclose(transform.nonconformity(log_p), expected, atol=1e-12)
