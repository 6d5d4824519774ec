"""Nonconformity scores of label log-probabilities, with their temperature and label prior."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from ..registry import SCORES

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """How a nonconformity score is made of log-probabilities.

    Attributes:
        uses_prior: whether the label prior is subtracted before the label softmax.
        nonconformity: function of log p(y | x) and the label log-softmax, both (N, K), to (N, K).
    """

    uses_prior: bool
    nonconformity: Callable[[Array, Array], Array]


def _negative_log_likelihood(log_p: Array, log_softmax: Array) -> Array:
    return -log_p


def _negative_log_softmax(log_p: Array, log_softmax: Array) -> Array:
    return -log_softmax


SCORES.register("nll")(Score(uses_prior=False, nonconformity=_negative_log_likelihood))
SCORES.register("label_nll")(Score(uses_prior=False, nonconformity=_negative_log_softmax))
SCORES.register("prior_nll")(Score(uses_prior=True, nonconformity=_negative_log_softmax))


@dataclass(frozen=True)
class ScoreTransform:
    """A score with its parameters, fitted once on val_cal and frozen.

    Attributes:
        score: name in the registry `SCORES`.
        temperature: tau > 0 of the label softmax.
        prior: (K,) mean over val_cal of log p(y | x), or None where the score does not use one.
    """

    score: str
    temperature: float = 1.0
    prior: tuple[float, ...] | None = None

    def label_log_softmax(self, log_p: Array) -> Array:
        """log softmax_y((log p(y | x) - prior_y) / tau), (N, K) float64."""
        shift = 0.0 if self.prior is None else np.asarray(self.prior)
        scaled = (log_p - shift) / self.temperature
        top = scaled.argmax(axis=1)[:, None]
        scaled = scaled - np.take_along_axis(scaled, top, axis=1)
        # The top label's own 1 stays out of the sum: added first, it would swallow what a sure model leaves
        # to the others, and all sure rows would tie at a score of exactly 0.
        others = np.exp(scaled)
        np.put_along_axis(others, top, 0.0, axis=1)
        return np.asarray(scaled - np.log1p(others.sum(axis=1, keepdims=True)))

    def probabilities(self, log_p: Array) -> Array:
        """The label softmax, (N, K) float64; its argmax is the predicted label."""
        return np.exp(self.label_log_softmax(log_p))

    def nonconformity(self, log_p: Array) -> Array:
        """s(x, y) of every label, (N, K) float64 (CPP paper, Eq. 1, or one of its renormalised kin)."""
        score: Score = SCORES[self.score]
        return score.nonconformity(log_p, self.label_log_softmax(log_p))


def fit_transform(score: str, temperature: str, log_p: Array, labels: npt.NDArray[np.int64]) -> ScoreTransform:
    """The score's parameters from val_cal: first the prior (no labels used), then the temperature.

    Args:
        score: name in `SCORES`.
        temperature: 'none', 'fit', or a positive number.
        log_p: (N, K) float64 log-probabilities of val_cal.
        labels: (N,) true labels, read only when the temperature is fitted.
    """
    prior = tuple(log_p.mean(axis=0).tolist()) if SCORES[score].uses_prior else None
    if temperature == "none":
        return ScoreTransform(score, 1.0, prior)
    if temperature != "fit":
        return ScoreTransform(score, float(temperature), prior)
    return ScoreTransform(score, _fit_temperature(ScoreTransform(score, 1.0, prior), log_p, labels), prior)


def _fit_temperature(transform: ScoreTransform, log_p: Array, labels: npt.NDArray[np.int64]) -> float:
    """The scalar that minimises the negative log-likelihood, which is convex in 1 / tau."""
    from scipy.optimize import minimize_scalar

    rows = np.arange(len(labels))

    def loss(log_tau: float) -> float:
        tempered = ScoreTransform(transform.score, math.exp(log_tau), transform.prior)
        return float(-tempered.label_log_softmax(log_p)[rows, labels].mean())

    found = minimize_scalar(loss, bounds=(math.log(1e-3), math.log(1e3)), method="bounded", options={"xatol": 1e-6})
    if not math.isfinite(found.fun):
        raise DataError("Expected a finite likelihood on val_cal to fit the temperature, but it is not.")
    return math.exp(float(found.x))
