"""Prediction sets: membership without tolerance, growth with confidence, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from optimum_cpp.conformal import conformal_quantile, prediction_sets
from optimum_cpp.errors import DataError, UsageError

finite = st.floats(allow_nan=False, allow_infinity=False)
matrices = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=finite)


def test_a_score_equal_to_the_quantile_belongs_to_the_set() -> None:
    q = 0.1
    scores = np.array([[q, math.nextafter(q, 1), math.nextafter(q, 0)]])
    assert prediction_sets(scores, q).tolist() == [[True, False, True]]


def test_every_calibration_row_up_to_rank_k_is_covered() -> None:
    scores = np.random.default_rng(0).standard_exponential((99, 4))
    labels = np.arange(99) % 4
    calibration = scores[np.arange(99), labels]
    quantile = conformal_quantile(calibration, "0.41")
    sets = prediction_sets(scores, quantile.value)
    assert sets[np.arange(99), labels].sum() == quantile.k == 59


@settings(deadline=None)
@given(matrices)
def test_sets_equal_a_loop(scores: np.ndarray) -> None:
    quantile = sorted(scores.ravel().tolist())[scores.size // 2]
    expected = [[bool(s <= quantile) for s in row] for row in scores.tolist()]
    sets = prediction_sets(scores, quantile)
    assert sets.dtype == np.bool_
    assert sets.tolist() == expected


@settings(deadline=None)
@given(scores=matrices, quantiles=st.tuples(finite, finite).map(sorted), allow_empty=st.booleans())
def test_sets_grow_with_the_quantile(scores: np.ndarray, quantiles: list[float], allow_empty: bool) -> None:
    small, large = (prediction_sets(scores, q, allow_empty=allow_empty) for q in quantiles)
    assert not (small & ~large).any()


@settings(deadline=None)
@given(matrices, finite)
def test_the_top_label_is_in_every_nonempty_set(scores: np.ndarray, quantile: float) -> None:
    for row, members in zip(scores.tolist(), prediction_sets(scores, quantile).tolist(), strict=True):
        assert members[row.index(min(row))] or not any(members)


@settings(deadline=None)
@given(matrices, finite)
def test_without_empty_sets_only_the_empty_ones_change(scores: np.ndarray, quantile: float) -> None:
    plain = prediction_sets(scores, quantile)
    filled = prediction_sets(scores, quantile, allow_empty=False)
    for row, before, after in zip(scores.tolist(), plain.tolist(), filled.tolist(), strict=True):
        if any(before):
            assert after == before
        else:
            assert [i for i, member in enumerate(after) if member] == [row.index(min(row))]


def test_a_given_top_label_fills_the_empty_sets() -> None:
    scores = np.array([[3.0, 2.0, 2.0], [0.0, 9.0, 9.0]])
    assert prediction_sets(scores, 1.0).tolist() == [[False] * 3, [True, False, False]]
    default = prediction_sets(scores, 1.0, allow_empty=False)
    assert default.tolist() == [[False, True, False], [True, False, False]]
    given_labels = prediction_sets(scores, 1.0, allow_empty=False, top_labels=np.array([2, 2]))
    assert given_labels.tolist() == [[False, False, True], [True, False, False]]


def test_an_infinite_quantile_gives_full_sets() -> None:
    assert prediction_sets(np.full((2, 3), 1e308), math.inf).all()


def test_no_rows_give_no_sets() -> None:
    assert prediction_sets(np.zeros((0, 3)), 1.0).shape == (0, 3)


def test_float32_scores_would_lose_the_kth_row() -> None:
    scores = np.full((19, 1), 0.1)
    quantile = conformal_quantile(scores[:, 0], "0.1").value
    rounded = scores.astype(np.float32)
    assert not (rounded.astype(np.float64) <= quantile).any()
    with pytest.raises(DataError, match=r"float32.*k-th calibration row itself would drop out"):
        prediction_sets(rounded, quantile)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bad_score_is_named(bad: float) -> None:
    scores = np.zeros((4, 3))
    scores[2, 1] = scores[3, 0] = bad
    with pytest.raises(DataError, match="row 2, label 1 is"):
        prediction_sets(scores, 1.0)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros(3), r"shape \(N, K\), but got float64 of shape \(3,\)"),
        (np.zeros((3, 0)), "at least one label"),
        (np.zeros((3, 2), dtype=np.int64), "int64"),
        ([[0.0]], "but got list"),
    ],
)
def test_other_arrays_are_refused(scores: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        prediction_sets(scores, 1.0)


@pytest.mark.parametrize("quantile", [math.nan, -math.inf, np.float32(0.5), "inf", None])
def test_other_quantiles_are_refused(quantile: float) -> None:
    with pytest.raises(UsageError, match="`quantile`"):
        prediction_sets(np.zeros((1, 2)), quantile)


@pytest.mark.parametrize(
    ("top_labels", "message"),
    [
        (np.array([0, 2]), "row 1 is 2"),
        (np.array([-1, 0]), "row 0 is -1"),
        (np.array([0.0, 1.0]), "float64"),
        (np.array([0]), r"shape \(2,\), but got int64 of shape \(1,\)"),
        ([0, 1], "but got list"),
    ],
)
def test_bad_top_labels_are_refused(top_labels: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        prediction_sets(np.zeros((2, 2)), 1.0, allow_empty=False, top_labels=top_labels)
