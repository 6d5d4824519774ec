import numpy as np
import pytest

from optimum_cpp.data import Examples
from optimum_cpp.errors import DataError
from optimum_cpp.frozen import FrozenClassifier
from optimum_cpp.scoring import ScoreTransform

LOG_P = {
    "a": [-0.1, -2.0, -5.0],
    "b": [-3.0, -0.2, -1.0],
    "c": [-4.0, -4.0, -4.0],
    "d": [-0.5, -1.5, -2.5],
}


class Scorer:
    """A scorer that knows its answers, and cuts the text `d`."""

    truncated = 0

    def log_probabilities(self, texts, description=None):
        self.truncated += texts.count("d")
        return np.array([LOG_P[text] for text in texts]).reshape(-1, 3)


def classifier(score: str = "nll", allow_empty: bool = True) -> FrozenClassifier:
    scorer = Scorer()
    return FrozenClassifier(scorer, ScoreTransform(score), allow_empty, "sha256:x")  # type: ignore[arg-type]


def examples(texts: str, labels: tuple[int, ...]) -> Examples:
    return Examples(tuple(texts), labels, tuple(texts), tuple(range(len(texts))))


def test_the_quantile_is_the_kth_smallest_true_label_score() -> None:
    found = classifier().calibrate(examples("abcd", (0, 1, 2, 1)), "0.4")
    np.testing.assert_array_equal(found.scores, [0.1, 0.2, 4.0, 1.5])
    assert (found.quantile.n, found.quantile.k, found.quantile.value) == (4, 3, 1.5)
    np.testing.assert_array_equal(found.set_sizes, [1, 2, 0, 2])  # s <= 1.5
    np.testing.assert_allclose(found.top_probabilities[2], 1 / 3)
    assert found.truncated == 1


def test_evaluation_counts_by_hand() -> None:
    found = classifier().evaluate(examples("abcd", (0, 0, 0, 1)), 1.5)
    counts = found.counts
    # Sets: a {0}; b {1, 2}; c {}; d {0, 1}. Predictions: 0, 1, 0 (tie to the lower index), 0.
    assert (counts.rows, counts.covered, counts.size_sum, counts.correct, counts.empty) == (4, 2, 5, 2, 1)
    np.testing.assert_array_equal(found.set_sizes, [1, 2, 0, 2])


def test_empty_sets_can_be_given_the_top_label() -> None:
    found = classifier(allow_empty=False).evaluate(examples("abcd", (0, 0, 0, 1)), 1.5)
    assert (found.counts.empty, found.counts.covered, found.counts.size_sum) == (0, 3, 6)


def test_calibration_needs_rows() -> None:
    with pytest.raises(DataError):
        classifier().calibrate(examples("", ()), "0.1")
