"""How coverage varies between classes, groups and set sizes: none of it is guaranteed, all of it is worth knowing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .quantile import describe, parse_alpha

# Angelopoulos et al. 2021 (RAPS, section 5): bounds of the set sizes of a stratum, both within it.
SIZE_STRATA = ((0, 1), (2, 3), (4, 10), (11, 100), (101, 1000))


def coverage_gap(covered: NDArray[np.bool_], groups: NDArray[Any], alpha: str) -> float:
    """Mean over the groups of |coverage of the group - (1 - alpha)| (CovGap, Ding et al. 2023), in [0, 1].

    Args:
        covered: (N,) bool, whether the row's set holds its true label.
        groups: (N,) the row's class or subgroup, of any type that sorts. Groups of no row do not count.
        alpha: allowed miscoverage, a decimal string.

    Raises:
        DataError: no rows, or another shape or dtype.
        UsageError: `alpha` is not a decimal number in (0, 1).
    """
    _check_covered(covered)
    if not isinstance(groups, np.ndarray) or groups.shape != covered.shape:
        raise DataError(f"Expected `groups` to be an array of shape {covered.shape}, but got {describe(groups)}.")
    _, which = np.unique(groups, return_inverse=True)  # (N,)
    return float(np.abs(_coverages(covered, which) - float(1 - parse_alpha(alpha))).mean())


def size_stratified_violation(covered: NDArray[np.bool_], sizes: NDArray[np.integer], alpha: str) -> float:
    """Largest over the strata of set sizes of |coverage of the stratum - (1 - alpha)| (SSCV), in [0, 1].

    The strata are those of RAPS (Angelopoulos et al. 2021): sizes 0 to 1, 2 to 3, 4 to 10, 11 to 100 and
    101 to 1000, larger sets in the last; strata of no row do not count.

    Args:
        covered: (N,) bool, whether the row's set holds its true label.
        sizes: (N,) int, the row's set size.
        alpha: allowed miscoverage, a decimal string.

    Raises:
        DataError: no rows, another shape or dtype, or a negative size.
        UsageError: `alpha` is not a decimal number in (0, 1).
    """
    _check_covered(covered)
    whole = isinstance(sizes, np.ndarray) and np.issubdtype(sizes.dtype, np.integer)
    if not whole or sizes.shape != covered.shape or sizes.min() < 0:
        raise DataError(f"Expected `sizes` to hold {len(covered)} whole numbers from 0, but got {describe(sizes)}.")
    upper = np.asarray([high for _, high in SIZE_STRATA[:-1]])
    _, which = np.unique(np.searchsorted(upper, sizes), return_inverse=True)  # (N,)
    return float(np.abs(_coverages(covered, which) - float(1 - parse_alpha(alpha))).max())


def _coverages(covered: NDArray[np.bool_], which: NDArray[np.integer]) -> NDArray[np.float64]:
    """Coverage of each of the groups 0, 1, ..., none of which is without rows."""
    return np.asarray(np.bincount(which, weights=covered) / np.bincount(which))


def _check_covered(covered: Any) -> None:
    if not isinstance(covered, np.ndarray) or covered.dtype != np.bool_ or covered.ndim != 1 or not len(covered):
        raise DataError(f"Expected `covered` to be a nonempty bool array of shape (N,), but got {describe(covered)}.")
