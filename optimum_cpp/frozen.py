"""`FrozenClassifier`: the one code path of calibration, evaluation and prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .conformal import ConformalQuantile, SetEvaluation, conformal_quantile, evaluate_sets, prediction_sets
from .data import DataRoles, Examples
from .scoring import LabelScorer, ScoreTransform


@dataclass(frozen=True)
class LabelScores:
    """Scores of N texts over K labels.

    Attributes:
        nonconformity: (N, K) float64 s(x, y).
        probabilities: (N, K) float64 label softmax.
        truncated: how many of the texts were cut to `max_text_tokens`.
    """

    nonconformity: npt.NDArray[np.float64]
    probabilities: npt.NDArray[np.float64]
    truncated: int

    @property
    def top_labels(self) -> npt.NDArray[np.int64]:
        """(N,) most probable label, ties to the lower index."""
        return np.asarray(self.probabilities.argmax(axis=1))


@dataclass(frozen=True)
class Calibration:
    """The final quantile and what it was computed from, in the order of the calibration rows.

    Attributes:
        quantile: the k-th smallest true-label score.
        scores: (n,) float64 true-label scores.
        top_probabilities: (n,) float64 probability of the top label.
        set_sizes: (n,) sizes of the sets at this quantile.
        truncated: how many of the texts were cut.
    """

    quantile: ConformalQuantile
    scores: npt.NDArray[np.float64]
    top_probabilities: npt.NDArray[np.float64]
    set_sizes: npt.NDArray[np.int64]
    truncated: int


@dataclass(frozen=True)
class Evaluation:
    """Exact counts on some rows, the size of each row's set, and how many texts were cut."""

    counts: SetEvaluation
    set_sizes: npt.NDArray[np.int64]
    truncated: int


@dataclass(frozen=True)
class FrozenClassifier:
    """A model whose weights, prompt, labels and score no longer change.

    Attributes:
        scorer: the model, tokenizer, prompt and labels.
        transform: the score with its prior and temperature.
        allow_empty: whether empty sets stay empty.
        digest: digest of all of this, by which the conformal role is opened.
    """

    scorer: LabelScorer
    transform: ScoreTransform
    allow_empty: bool
    digest: str

    def open_conformal(self, roles: DataRoles) -> Examples:
        """Unlock the conformal role for this classifier and read it (method: step 6)."""
        roles.unlock_conformal(self.digest)
        return roles.conformal

    def score(self, texts: Sequence[str], description: str | None = None) -> LabelScores:
        """Nonconformity scores and label probabilities of every label."""
        before = self.scorer.truncated
        log_p = self.scorer.log_probabilities(texts, description=description)
        return LabelScores(
            self.transform.nonconformity(log_p),
            self.transform.probabilities(log_p),
            self.scorer.truncated - before,
        )

    def sets(self, scores: LabelScores, quantile: float) -> npt.NDArray[np.bool_]:
        """C(x) = {y : s(x, y) <= q-hat} (CPP paper, Eq. 3), (N, K) bool."""
        return prediction_sets(
            scores.nonconformity, quantile, allow_empty=self.allow_empty, top_labels=scores.top_labels
        )

    def calibrate(self, examples: Examples, alpha: str, description: str | None = None) -> Calibration:
        """The conformal quantile of true-label scores (CPP paper, Eq. 2)."""
        scores = self.score(examples.texts, description)
        true_scores = scores.nonconformity[np.arange(len(examples)), np.asarray(examples.labels, dtype=np.int64)]
        quantile = conformal_quantile(true_scores, alpha)
        sizes = self.sets(scores, quantile.value).sum(axis=1)
        return Calibration(quantile, true_scores, scores.probabilities.max(axis=1), sizes, scores.truncated)

    def evaluate(self, examples: Examples, quantile: float, description: str | None = None) -> Evaluation:
        """Coverage, set sizes, accuracy and ECE on labelled rows."""
        scores = self.score(examples.texts, description)
        sets = self.sets(scores, quantile)
        counts = evaluate_sets(sets, np.asarray(examples.labels), scores.probabilities)
        return Evaluation(counts, sets.sum(axis=1), scores.truncated)
