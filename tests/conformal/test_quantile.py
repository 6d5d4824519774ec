"""The exact rank and the quantile, against integer tables and the known law of coverage."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, kstest

from optimum_cpp.conformal import ConformalQuantile, conformal_quantile, conformal_rank, rows_needed
from optimum_cpp.errors import DataError, UsageError

# n, alpha, (n + 1)(1 - alpha) rounded up, worked out by hand
RANKS = [
    (0, "0.1", 1),
    (1, "0.5", 1),
    (8, "0.1", 9),  # 8.1
    (9, "0.1", 9),  # 9.0
    (10, "0.1", 10),  # 9.9
    (19, "0.05", 19),
    (99, "0.01", 99),
    (99, "0.1", 90),
    (256, "0.1", 232),  # 231.3
    (1024, "0.1", 923),  # 922.5
    (1024, "0.05", 974),  # 973.75
    (5000, "0.001", 4996),  # 4995.999
]
# Products that are whole numbers, which binary floating point puts just above: ceil gives k + 1.
FLOAT_TRAPS = [
    (149, "0.18", 123),
    (99, "0.41", 59),
    (49, "0.42", 29),
    (24, "0.44", 14),
    (999, "0.059", 941),
]
GRID_OF_ALPHAS = [f"0.{digits:03d}" for digits in range(1, 1000, 7)]


@pytest.mark.parametrize(("n", "alpha", "k"), RANKS + FLOAT_TRAPS)
def test_rank_table(n: int, alpha: str, k: int) -> None:
    assert conformal_rank(n, alpha) == k


@pytest.mark.parametrize(("n", "alpha", "k"), FLOAT_TRAPS)
def test_the_traps_are_traps(n: int, alpha: str, k: int) -> None:
    assert math.ceil((n + 1) * (1 - float(alpha))) == k + 1


@pytest.mark.parametrize("n", [1, 7, 24, 99, 149, 1024])
def test_rank_equals_integer_arithmetic(n: int) -> None:
    for alpha in GRID_OF_ALPHAS:
        per_mille = 1000 - int(alpha[2:])
        assert conformal_rank(n, alpha) == -(-(n + 1) * per_mille // 1000), alpha


def test_rank_reads_any_way_of_writing_the_number() -> None:
    assert {conformal_rank(149, text) for text in ("0.18", ".18", "18e-2", "0.1800")} == {123}


@pytest.mark.parametrize(
    ("alpha", "rows"), [("0.1", 9), ("0.05", 19), ("0.01", 99), ("0.5", 1), ("0.9", 1), ("0.3", 3)]
)
def test_rows_needed_table(alpha: str, rows: int) -> None:
    assert rows_needed(alpha) == rows


def test_rows_needed_is_where_the_rank_first_exists() -> None:
    for alpha in GRID_OF_ALPHAS:
        rows = rows_needed(alpha)
        assert conformal_rank(rows, alpha) <= rows, alpha
        assert conformal_rank(rows - 1, alpha) > rows - 1, alpha


@pytest.mark.parametrize("alpha", ["0", "1", "-0.1", "1.5", "nan", "inf", "a tenth", "1/10", ""])
def test_alpha_must_be_a_decimal_between_0_and_1(alpha: str) -> None:
    with pytest.raises(UsageError, match="`alpha`"):
        conformal_rank(10, alpha)
    with pytest.raises(UsageError, match="`alpha`"):
        rows_needed(alpha)


def test_negative_n_is_refused() -> None:
    with pytest.raises(UsageError, match="`n`"):
        conformal_rank(-1, "0.1")


def test_quantile_holds_what_it_was_computed_from() -> None:
    scores = np.array([0.5, -1.0, 2.0, 0.25])
    assert conformal_quantile(scores, "0.4") == ConformalQuantile(alpha="0.4", n=4, k=3, value=0.5)
    assert scores.tolist() == [0.5, -1.0, 2.0, 0.25]


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(
    scores=st.lists(finite, min_size=1, max_size=60),
    alpha=st.integers(1, 999).map(lambda n: f"{n / 1000:.3f}"),
)
def test_quantile_is_the_kth_of_the_sorted_scores(scores: list[float], alpha: str) -> None:
    k = math.ceil((len(scores) + 1) * (1 - Fraction(alpha)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = conformal_quantile(np.array(scores), alpha)
    assert result.k == k
    assert result.value == (sorted(scores)[k - 1] if k <= len(scores) else math.inf)


@pytest.mark.parametrize(("n", "alpha", "k"), FLOAT_TRAPS)
def test_quantile_uses_the_exact_rank(n: int, alpha: str, k: int) -> None:
    scores = np.random.default_rng(n).permutation(n).astype(np.float64)
    assert conformal_quantile(scores, alpha).value == k - 1


def test_too_few_rows_give_infinity_and_say_how_many_are_needed() -> None:
    with pytest.warns(UserWarning, match=r"at least 9 calibration rows for alpha=0\.1, but got 8"):
        result = conformal_quantile(np.zeros(8), "0.1")
    assert (result.k, result.value) == (9, math.inf)


def test_enough_rows_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert conformal_quantile(np.arange(9.0), "0.1").value == 8.0


@pytest.mark.parametrize("order", [[0.0, -0.0, -0.0], [-0.0, -0.0, 0.0], [-0.0, 0.0, -0.0]])
def test_the_sign_of_zero_does_not_depend_on_row_order(order: list[float]) -> None:
    for alpha in ("0.3", "0.5", "0.7"):
        assert conformal_quantile(np.array(order), alpha).value.hex() == "0x0.0p+0"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_bad_score_is_named(bad: float) -> None:
    scores = np.zeros(20)
    scores[[7, 12]] = bad
    with pytest.raises(DataError, match=r"row 7 is "):
        conformal_quantile(scores, "0.1")


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros(0), "empty"),
        (np.zeros(20, dtype=np.float32), "float32.*k-th calibration row"),
        (np.zeros(20, dtype=np.float16), "float16"),
        (np.zeros(20, dtype=np.int64), "int64"),
        (np.zeros((20, 1)), r"shape \(n,\), but got float64 of shape \(20, 1\)"),
        (np.float64(1.0), "but got float64"),
        ([0.0] * 20, "but got list"),
    ],
)
def test_other_arrays_are_refused(scores: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        conformal_quantile(scores, "0.1")


@pytest.mark.parametrize("n", [19, 49])
def test_coverage_follows_its_beta_law_and_the_next_rank_does_not(n: int) -> None:
    # With uniform scores the coverage of the sets {s <= q} is q itself, Beta(k, n + 1 - k).
    draws = np.random.default_rng(n).random((200, n))
    k = conformal_rank(n, "0.1")
    law = beta(k, n + 1 - k).cdf
    assert kstest([conformal_quantile(row, "0.1").value for row in draws], law).pvalue > 0.01
    for wrong in (k - 1, k + 1):
        assert kstest(np.sort(draws, axis=1)[:, wrong - 1], law).pvalue < 1e-6
