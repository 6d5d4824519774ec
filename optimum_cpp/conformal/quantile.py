"""The conformal quantile: an exact rank and the score that stands at it (CPP paper, Eq. 2)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decimals import decimal_string
from ..errors import DataError, UsageError


@dataclass(frozen=True)
class ConformalQuantile:
    """The quantile of `n` calibration scores at level 1 - alpha (CPP paper, Eq. 2).

    Attributes:
        alpha: the allowed miscoverage as a decimal string.
        n: the number of calibration scores.
        k: the rank ceil((n + 1)(1 - alpha)), counted from 1.
        value: the k-th smallest score, or +inf when k > n.
    """

    alpha: str
    n: int
    k: int
    value: float


def parse_alpha(alpha: str) -> Fraction:
    """`alpha` as the exact number that its decimal digits say.

    Raises:
        UsageError: not a decimal number, or outside (0, 1).
    """
    exact = Fraction(decimal_string("alpha", alpha))
    if not 0 < exact < 1:
        raise UsageError(f"Expected argument `alpha` to lie in (0, 1), but got {alpha}.")
    return exact


def conformal_rank(n: int, alpha: str) -> int:
    """The rank k = ceil((n + 1)(1 - alpha)) in exact arithmetic (CPP paper, Eq. 2).

    Binary floating point gives a rank that is one too big at, for example, n = 149 and alpha = 0.18.

    Raises:
        UsageError: `n` is negative, or `alpha` is not a decimal number in (0, 1).
    """
    if n < 0:
        raise UsageError(f"Expected argument `n` to be at least 0, but got {n}.")
    return math.ceil((n + 1) * (1 - parse_alpha(alpha)))


def rows_needed(alpha: str) -> int:
    """The smallest number of calibration rows whose quantile is finite.

    Raises:
        UsageError: `alpha` is not a decimal number in (0, 1).
    """
    # (n + 1)(1 - alpha) <= n  <=>  n >= 1 / alpha - 1
    return math.ceil(1 / parse_alpha(alpha)) - 1


def conformal_quantile(scores: NDArray[np.float64], alpha: str) -> ConformalQuantile:
    """The k-th smallest of the calibration scores (CPP paper, Eq. 2).

    Args:
        scores: (n,) float64, the nonconformity score of each calibration row's true label.
        alpha: the allowed miscoverage as a decimal string, in (0, 1).

    Returns:
        The quantile with its exact rank. When k > n its value is +inf, and a warning says how many
        rows would be needed.

    Raises:
        DataError: not a float64 array of shape (n,), no rows, or a score that is NaN or infinite.
        UsageError: `alpha` is not a decimal number in (0, 1).

    Example:
        >>> conformal_quantile(np.array([0.3, 0.1, 0.2]), "0.4")
        ConformalQuantile(alpha='0.4', n=3, k=3, value=0.3)
    """
    check_scores(scores, ndim=1)
    n = len(scores)
    if n == 0:
        raise DataError("Expected `scores` to hold at least one calibration row, but it is empty.")
    k = conformal_rank(n, alpha)
    if k > n:
        warnings.warn(
            f"Expected at least {rows_needed(alpha)} calibration rows for alpha={alpha}, but got {n}: "
            "the quantile is infinite, so every prediction set holds every label.",
            stacklevel=2,
        )
        return ConformalQuantile(str(alpha), n, k, math.inf)
    # Adding 0.0 turns -0.0 into 0.0: the two compare equal, so which of them stands at rank k would
    # depend on the order of the rows, and so would the stored text.
    value = float(np.partition(scores, k - 1)[k - 1]) + 0.0
    return ConformalQuantile(str(alpha), n, k, value)


def check_scores(scores: Any, ndim: int) -> None:
    """Refuse anything but a float64 array of finite scores, (n,) or (N, K).

    Raises:
        DataError: the wrong type, dtype or number of dimensions, or the first row with a bad score.
    """
    shape = "(n,)" if ndim == 1 else "(N, K)"
    if not isinstance(scores, np.ndarray) or scores.ndim != ndim:
        raise DataError(f"Expected `scores` to be a float64 array of shape {shape}, but got {describe(scores)}.")
    if scores.dtype != np.float64:
        raise DataError(
            f"Expected `scores` to be float64, but got {scores.dtype}: compared in another precision, "
            "the k-th calibration row itself would drop out of its set, so compute them in float64."
        )
    bad = np.argwhere(~np.isfinite(scores))
    if len(bad):
        where = f"row {bad[0][0]}" + (f", label {bad[0][1]}" if ndim == 2 else "")
        raise DataError(
            f"Expected `scores` to be finite, but {where} is {scores[tuple(bad[0])]}; "
            "check the model's logits for this row."
        )


def check_whole_numbers(name: str, values: Any, shape: tuple[int, ...]) -> None:
    """Refuse anything but an integer array of this shape.

    Raises:
        DataError: the wrong type, dtype or shape.
    """
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu" or values.shape != shape:
        raise DataError(f"Expected `{name}` to be an integer array of shape {shape}, but got {describe(values)}.")


def check_level(level: float) -> None:
    """Refuse a probability outside (0, 1).

    Raises:
        UsageError: it lies outside.
    """
    if not 0 < level < 1:
        raise UsageError(f"Expected argument `level` to lie in (0, 1), but got {level}.")


def describe(value: Any) -> str:
    """What a wrong argument is, for an error: dtype and shape of an array, else the type."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__
