"""Is the pruned classifier as valid and nearly as efficient as the dense one? Two verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ..decimals import decimal_string
from ..errors import DataError, UsageError
from .quantile import check_level, check_whole_numbers

HOLDS = "holds"
FAILS = "fails"
UNDECIDED = "undecided"


@dataclass(frozen=True)
class SizeDifference:
    """Mean of (pruned - dense) set size over the same rows, with its bootstrap interval, in labels."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """`holds`, `fails` or `undecided`, and the numbers behind it in words."""

    verdict: str
    reason: str


@dataclass(frozen=True)
class ContractPreservation:
    """The two lines of contract preservation with slack epsilon_size."""

    validity: Verdict
    efficiency: Verdict


def paired_size_difference(
    sizes: NDArray[np.integer],
    reference_sizes: NDArray[np.integer],
    *,
    seed: int,
    resamples: int = 2000,
    level: float = 0.05,
) -> SizeDifference:
    """Paired percentile bootstrap of the mean of (pruned - dense) set size.

    Args:
        sizes: (N,) int, set sizes of the pruned classifier.
        reference_sizes: (N,) int, set sizes of the dense classifier on the same rows.
        seed: seed of the resampling; the same seed gives the same interval.
        resamples: number of bootstrap samples of the N rows.
        level: probability outside the interval, half of it on each side.

    Raises:
        DataError: no rows, arrays that are not whole numbers, or of different shapes.
        UsageError: no resamples, or a level outside (0, 1).
    """
    if resamples < 1:
        raise UsageError(f"Expected argument `resamples` to be at least 1, but got {resamples}.")
    check_level(level)
    rows = np.size(sizes)
    check_whole_numbers("sizes", sizes, (rows,))
    check_whole_numbers("reference_sizes", reference_sizes, (rows,))
    if rows == 0:
        raise DataError("Expected `sizes` to hold at least one row, but it is empty.")
    # In int64, since a difference of unsigned numbers would wrap around.
    difference = sizes.astype(np.int64) - reference_sizes.astype(np.int64)  # (N,)
    generator = np.random.default_rng(seed)
    # Sums of whole numbers are exact, so the interval does not depend on the order of summation.
    sums = [int(difference[generator.integers(rows, size=rows)].sum()) for _ in range(resamples)]
    low, high = np.quantile(sums, [level / 2, 1 - level / 2]) / rows
    return SizeDifference(mean=int(difference.sum()) / rows, low=float(low), high=float(high))


def contract_preservation(
    *, covered: int, band: tuple[int, int], difference: SizeDifference, epsilon_size: str
) -> ContractPreservation:
    """Validity and efficiency of the pruned classifier, each with a verdict.

    Validity: the covered count holds inside its acceptance band and fails below it. Above the band it
    is undecided: ties among the scores raise coverage there without harm, but so would test rows that
    are easier than the calibration rows.

    Efficiency: holds when the whole bootstrap interval of (pruned - dense) set size is at most
    epsilon_size, fails when the whole interval is above it, undecided otherwise.

    Args:
        covered: test rows whose set holds the true label.
        band: the lowest and highest acceptable covered count, from `acceptance_band`.
        difference: from `paired_size_difference` on the same test rows.
        epsilon_size: slack in labels as a decimal string, at least 0.

    Raises:
        UsageError: `epsilon_size` is not a decimal number or below 0, or the band's ends are swapped.
    """
    slack = decimal_string("epsilon_size", epsilon_size)
    if Fraction(slack) < 0:
        raise UsageError(f"Expected argument `epsilon_size` to be at least 0, but got {slack}.")
    low, high = band
    if low > high:
        raise UsageError(f"Expected argument `band` to run from low to high, but got {band}.")
    validity = FAILS if covered < low else UNDECIDED if covered > high else HOLDS
    place = {FAILS: "below", UNDECIDED: "above", HOLDS: "inside"}[validity]
    # The interval's ends are rounded quotients; rounding the slack alike keeps equal numbers equal.
    efficiency = FAILS if difference.low > float(slack) else UNDECIDED
    if difference.high <= float(slack):
        efficiency = HOLDS
    return ContractPreservation(
        validity=Verdict(validity, f"{covered} rows covered, {place} the acceptance band [{low}, {high}]"),
        efficiency=Verdict(
            efficiency,
            f"set size {difference.mean:+.4f} against dense, interval "
            f"[{difference.low:+.4f}, {difference.high:+.4f}], slack {slack}",
        ),
    )
