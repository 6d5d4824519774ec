"""Choosing lambda on val_eval: the guardrail rule and Learn-Then-Test, on exact counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .decimals import decimal_string
from .errors import UsageError

ACCURACY_SLACK = Fraction("0.02")
COVERAGE_SLACK = Fraction("0.02")
SIZE_TIE = Fraction("0.02")


@dataclass(frozen=True)
class Candidate:
    """One value of lambda and its counts on val_eval.

    Attributes:
        lam: lambda as a decimal string.
        rows: rows of val_eval.
        covered: rows whose set holds the true label.
        size_sum: sum of the set sizes.
        correct: rows whose predicted label is the true one.
    """

    lam: str
    rows: int
    covered: int
    size_sum: int
    correct: int

    @property
    def weight(self) -> Fraction:
        """Lambda as an exact number."""
        return Fraction(self.lam)

    @property
    def coverage(self) -> Fraction:
        """Covered rows over rows."""
        return Fraction(self.covered, self.rows)

    @property
    def size(self) -> Fraction:
        """Mean set size."""
        return Fraction(self.size_sum, self.rows)

    @property
    def accuracy(self) -> Fraction:
        """Correct rows over rows."""
        return Fraction(self.correct, self.rows)


@dataclass(frozen=True)
class Decision:
    """Whether one candidate was eligible (for Learn-Then-Test: accepted), and why or why not."""

    lam: str
    eligible: bool
    reason: str


@dataclass(frozen=True)
class Selection:
    """The chosen lambda, the rule's name, and one decision per candidate in grid order."""

    lam: str
    rule: str
    decisions: tuple[Decision, ...]


def select_by_guardrail(candidates: Sequence[Candidate], alpha: str) -> Selection:
    """The smallest sets among candidates that keep accuracy and coverage.

    1. Eligible: accuracy at least that of lambda = 0 minus 0.02, and coverage at least
       1 - alpha - 0.02.
    2. The smallest mean set size wins; eligible candidates at most 0.02 above it tie.
    3. Ties go to the higher accuracy, then to the smaller lambda.
    4. If no nonzero lambda is eligible, lambda = 0, even if it is not eligible itself.

    Args:
        candidates: one per value of the grid, counted on the same rows.
        alpha: the allowed miscoverage as a decimal string.

    Raises:
        UsageError: a grid without 0, with a repeated lambda or one outside [0, 1], unequal numbers of
            rows, counts that cannot be, or `alpha` outside (0, 1).
    """
    base = _check_grid(candidates)
    target = 1 - _share("alpha", alpha)
    verdicts = {}
    for item in candidates:
        failures = _guardrail_failures(item, base, target)
        text = f"not eligible: {' and '.join(failures)}" if failures else f"eligible; size {_text(item.size)}"
        verdicts[item.lam] = (not failures, text)
    pool = [item for item in candidates if verdicts[item.lam][0]]
    if not any(item.weight for item in pool):
        return _conclude("guardrail", verdicts, base, "no nonzero lambda is eligible", [base])
    smallest = min(pool, key=lambda item: item.size)
    tied = [item for item in pool if item.size <= smallest.size + SIZE_TIE]
    larger = f"more than {_text(SIZE_TIE)} above {_text(smallest.size)} (lambda={smallest.lam})"
    return _conclude("guardrail", verdicts, *_best(tied), tied, larger)


def learn_then_test(candidates: Sequence[Candidate], risk: str, delta: str) -> Selection:
    """The smallest sets among candidates whose top-1 error is shown to be below `risk` (Theorem 8).

    A candidate with error R on n rows has p = exp(-2 n (risk - R)^2) if R < risk and 1 otherwise; it
    is accepted if p <= delta / (size of the grid). Equal sizes go to the higher accuracy, then to the
    smaller lambda. If none is accepted, lambda = 0, without a guarantee.

    Args:
        candidates: one per value of the grid, counted on the same rows.
        risk: the top-1 error allowed, a decimal string in (0, 1).
        delta: the probability of a false acceptance, a decimal string in (0, 1).

    Raises:
        UsageError: a bad grid, as in `select_by_guardrail`, or `risk` or `delta` outside (0, 1).
    """
    base = _check_grid(candidates)
    bound = _share("risk", risk)
    threshold = float(_share("delta", delta) / len(candidates))
    verdicts = {}
    for item in candidates:
        p = _hoeffding_p(item, bound)
        if p <= threshold:
            text = f"accepted: p {p:.3g} <= {threshold:.3g}; size {_text(item.size)}"
        else:
            text = f"not accepted: p {p:.3g} > {threshold:.3g}"
        verdicts[item.lam] = (p <= threshold, text)
    pool = [item for item in candidates if verdicts[item.lam][0]]
    if not pool:
        why = "no lambda is accepted, so the risk is not bounded"
        return _conclude("learn_then_test", verdicts, base, why, [base])
    smallest = min(pool, key=lambda item: item.size)
    tied = [item for item in pool if item.size == smallest.size]
    larger = f"above {_text(smallest.size)} (lambda={smallest.lam})"
    return _conclude("learn_then_test", verdicts, *_best(tied), tied, larger)


def _conclude(
    rule: str,
    verdicts: dict[str, tuple[bool, str]],
    chosen: Candidate,
    why: str,
    tied: list[Candidate],
    larger: str = "",
) -> Selection:
    """Complete each verdict (passed, text) with why its lambda was or was not chosen."""
    ties = {item.lam: item for item in tied}
    decisions = []
    for lam, (passed, text) in verdicts.items():
        if lam == chosen.lam:
            text += f"; chosen: {why}"
        elif passed:
            text += f"; not chosen: {_lost(ties[lam], chosen) if lam in ties else larger}"
        decisions.append(Decision(lam, passed, text))
    return Selection(chosen.lam, rule, tuple(decisions))


def _guardrail_failures(item: Candidate, base: Candidate, target: Fraction) -> list[str]:
    failures = []
    if item.accuracy < base.accuracy - ACCURACY_SLACK:
        failures.append(
            f"accuracy {_text(item.accuracy)} is more than {_text(ACCURACY_SLACK)} below "
            f"{_text(base.accuracy)} (lambda=0)"
        )
    if item.coverage < target - COVERAGE_SLACK:
        failures.append(f"coverage {_text(item.coverage)} is more than {_text(COVERAGE_SLACK)} below {_text(target)}")
    return failures


def _hoeffding_p(item: Candidate, risk: Fraction) -> float:
    margin = risk - (1 - item.accuracy)
    return math.exp(-2 * item.rows * margin**2) if margin > 0 else 1.0


def _best(tied: list[Candidate]) -> tuple[Candidate, str]:
    """The winner among candidates whose sizes tie, and what decided."""
    winner = min(tied, key=lambda item: (-item.accuracy, item.weight))
    if len(tied) == 1:
        return winner, "smallest set"
    if sum(item.accuracy == winner.accuracy for item in tied) == 1:
        return winner, "sizes tie, highest accuracy"
    return winner, "sizes and accuracies tie, smallest lambda"


def _lost(item: Candidate, chosen: Candidate) -> str:
    """Why a candidate whose size ties with the chosen one's was not chosen."""
    if item.accuracy < chosen.accuracy:
        return f"sizes tie, accuracy below {_text(chosen.accuracy)} (lambda={chosen.lam})"
    return f"sizes and accuracies tie, lambda={chosen.lam} is smaller"


def _check_grid(candidates: Sequence[Candidate]) -> Candidate:
    """Refuse a grid that the rules cannot judge; return the candidate with lambda = 0."""
    for item in candidates:
        if not 0 <= Fraction(decimal_string("lam", item.lam)) <= 1:
            raise UsageError(f"Expected lambda to lie in [0, 1], but got {item.lam}.")
        if item.rows < 1 or not (0 <= item.covered <= item.rows and 0 <= item.correct <= item.rows):
            raise UsageError(f"Expected counts of lambda={item.lam} to lie in [0, rows] of some rows, but got {item}.")
        if item.size_sum < item.covered:
            raise UsageError(f"Expected lambda={item.lam} to have size_sum of at least covered, but got {item}.")
    grid = ", ".join(item.lam for item in candidates)
    if len({item.weight for item in candidates}) != len(candidates):
        raise UsageError(f"Expected each lambda of the grid once, but got {grid}.")
    if len({item.rows for item in candidates}) > 1:
        rows = ", ".join(f"{item.rows} (lambda={item.lam})" for item in candidates)
        raise UsageError(f"Expected every candidate to be counted on the same rows, but got {rows}.")
    for item in candidates:
        if item.weight == 0:
            return item
    raise UsageError(f"Expected the grid to hold lambda=0, the base pruner alone, but got {grid or 'no candidates'}.")


def _share(name: str, value: str) -> Fraction:
    exact = Fraction(decimal_string(name, value))
    if not 0 < exact < 1:
        raise UsageError(f"Expected argument `{name}` to lie in (0, 1), but got {value}.")
    return exact


def _text(value: Fraction) -> str:
    """A number for a reader, at most four decimals; decisions are never made on it."""
    return f"{float(value):.4f}".rstrip("0").rstrip(".")
