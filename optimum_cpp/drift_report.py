"""Recent rows against the calibration rows: which tests are made, at which level, and what they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from .conformal import (
    SampleComparison,
    acceptance_band,
    compare_set_sizes,
    compare_values,
    coverage_shortfall,
    martingale_test,
)
from .decimals import decimal_string
from .errors import UsageError


@dataclass(frozen=True)
class Sample:
    """What the model makes of N rows.

    Attributes:
        top_probabilities: (N,) float64 probability of the most probable label.
        set_sizes: (N,) int number of labels in the prediction set.
        scores: (N,) float64 nonconformity score of the true label; None where rows have no labels.
        covered: rows whose set holds the true label; None where rows have no labels.
    """

    top_probabilities: npt.NDArray[np.float64]
    set_sizes: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64] | None = None
    covered: int | None = None


@dataclass(frozen=True)
class DriftTest:
    """One test.

    Attributes:
        name: scores, martingale, coverage, top_probabilities or set_sizes.
        statistic: distance of the distribution functions (scores, top_probabilities), natural log of the
            martingale's largest value, share of covered rows, or chi-squared (set_sizes).
        p_value: of the statistic; for the martingale one over its largest value (Ville's inequality).
        level: what the p-value is compared with, the report's level shared out among its tests.
        alarm: whether the p-value is at most the level.
        sentence: the same for people.
    """

    name: str
    statistic: float
    p_value: float
    level: float
    alarm: bool
    sentence: str


@dataclass(frozen=True)
class DriftReport:
    """Recent rows against the calibration rows.

    Attributes:
        rows: how many rows were compared.
        calibration_rows: with how many.
        repeated: rows left out because an earlier row has the same folded text.
        labelled: whether the rows have labels, so that scores and coverage could be compared.
        level: chance of an alarm without drift is at most this, a decimal string.
        tests: in the order in which the report shows them.
        covered: rows whose set holds the true label; None without labels.
        band: covered counts that the coverage test accepts, with as much beyond its upper end; None
            without labels.
    """

    rows: int
    calibration_rows: int
    repeated: int
    labelled: bool
    level: str
    tests: tuple[DriftTest, ...]
    covered: int | None
    band: tuple[int, int] | None

    @property
    def alarm(self) -> bool:
        """Whether any test alarms."""
        return any(test.alarm for test in self.tests)

    @property
    def coverage(self) -> float | None:
        """Share of the rows whose set holds the true label; None without labels."""
        return None if self.covered is None else self.covered / self.rows

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "alarm": self.alarm, "coverage": self.coverage}

    def summary(self) -> str:
        """What the command prints: one line for each test, and what follows."""
        kind = "labelled" if self.labelled else "unlabelled"
        lines = [
            f"{self.rows} {kind} rows against {self.calibration_rows} calibration rows; level {self.level}, "
            f"{self.tests[0].level:.2g} for each of {len(self.tests)} tests"
        ]
        if self.repeated:
            lines.append(f"{self.repeated} rows that repeat an earlier text are left out")
        lines += [f"{'DRIFT' if test.alarm else 'ok':<7}{test.name:<19}{test.sentence}" for test in self.tests]
        return "\n".join([*lines, "", self._conclusion()])

    def _conclusion(self) -> str:
        if self.alarm:
            return (
                "The rows are not like the calibration rows: the contract promises nothing for them. Calibrate on new "
                "labelled rows with 'optimum-cli cpp calibrate'."
            )
        return "No drift found, which is no proof that there is none."


def judge(new: Sample, reference: Sample, *, rank: int, level: str, seed: int, repeated: int = 0) -> DriftReport:
    """The report on plain arrays.

    Args:
        new: the recent rows in their order; their labels decide which tests are made.
        reference: the calibration rows, with labels.
        rank: k of the quantile that the set sizes belong to.
        level: chance of an alarm without drift, a decimal string in (0, 1).
        seed: of the random ranks among tied scores.
        repeated: rows that were left out before.

    Raises:
        DataError: no rows, or numbers that are NaN or infinite.
        UsageError: a level outside (0, 1).
    """
    compared = list(_compare(new, reference, rank, seed))
    each = float(parse_level(level) / len(compared))
    rows, calibration_rows = len(new.set_sizes), len(reference.set_sizes)
    # The coverage test has the lower tail alone at its level, and a band has one on either side.
    band = None if new.covered is None else acceptance_band(calibration_rows, rank, rows, level=2 * each)
    tests = tuple(
        DriftTest(
            name,
            found.statistic,
            found.p_value,
            each,
            found.p_value <= each,
            f"{words}, p {found.p_value:.2g}",
        )
        for name, found, words in compared
    )
    return DriftReport(
        rows=rows,
        calibration_rows=calibration_rows,
        repeated=repeated,
        labelled=new.scores is not None,
        level=str(level),
        tests=tests,
        covered=new.covered,
        band=band,
    )


def _compare(new: Sample, reference: Sample, rank: int, seed: int) -> Iterator[tuple[str, SampleComparison, str]]:
    """Name, outcome and words of every test that these rows allow."""
    rows, calibration_rows = len(new.set_sizes), len(reference.set_sizes)
    if new.scores is not None and new.covered is not None and reference.scores is not None:
        found = compare_values(new.scores, reference.scores)
        yield "scores", found, f"true-label scores are at KS distance {found.statistic:.3f}"
        found = martingale_test(new.scores, reference.scores, seed=seed)
        yield "martingale", found, f"the martingale of true-label scores grew to e^{found.statistic:.2f}"
        found = coverage_shortfall(new.covered, rows, calibration_rows=calibration_rows, rank=rank)
        yield "coverage", found, f"{new.covered} of {rows} rows covered ({found.statistic:.4f})"
    found = compare_values(new.top_probabilities, reference.top_probabilities)
    yield "top_probabilities", found, f"probabilities of the top label are at KS distance {found.statistic:.3f}"
    found = compare_set_sizes(new.set_sizes, reference.set_sizes)
    means = f"{new.set_sizes.mean():.3f} labels in a set, {reference.set_sizes.mean():.3f} at calibration"
    yield "set_sizes", found, f"{means}; chi-squared {found.statistic:.2f}"


def parse_level(level: str) -> Fraction:
    """`level` as the exact number that its decimal digits say.

    Raises:
        UsageError: not a decimal number, or outside (0, 1).
    """
    exact = Fraction(decimal_string("level", level))
    if not 0 < exact < 1:
        raise UsageError(f"Expected argument `level` to lie in (0, 1), but got {level}.")
    return exact
