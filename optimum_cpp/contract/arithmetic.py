"""What the numbers of a contract imply about each other, computed again without model or data."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ..conformal import SizeDifference, acceptance_band, conformal_quantile, contract_preservation
from ..errors import CPPError
from ..selection import Candidate, Selection, learn_then_test, select_by_guardrail
from .canonical import float_hex, from_hex
from .claims import Claims, EvaluationClaim, SelectionClaim
from .findings import Finding, compare

# Models that a run tests besides the one it serves.
_REFERENCES = ("dense", "base")


def recompute(claims: Claims) -> tuple[Finding, ...]:
    """The quantile from its scores, the choice from its counts, bands and verdicts from theirs."""
    return (
        *_quantile(claims),
        *_matrices(claims),
        *(_selection(claims, claims.selection) if claims.selection else ()),
        *_evaluation(claims),
        *_verdicts(claims),
    )


def _quantile(claims: Claims) -> Iterator[Finding]:
    claim = claims.calibration
    found = conformal_quantile(np.array([from_hex(score) for score in claim.scores]), claim.alpha)
    yield compare("calibration.n", claim.n, found.n)
    yield compare("calibration.k", claim.k, found.k)
    yield compare("calibration.quantile", claim.quantile, float_hex(found.value))


def _matrices(claims: Claims) -> Iterator[Finding]:
    """As many zeros as the sparsity asks for; every group is rounded down, a model may start sparse."""
    if claims.pruning is None:
        return
    for name, matrix in claims.model.matrices.items():
        possible = 0 <= matrix.zeros <= matrix.size
        if not possible:
            yield Finding(f"model.matrices.{name}", False, f"at most {matrix.size} zeros", str(matrix.zeros))
    size = sum(matrix.size for matrix in claims.model.matrices.values())
    zeros = sum(matrix.zeros for matrix in claims.model.matrices.values())
    # A group holds at least 16 weights wherever the shares differ by more than this.
    wanted = max(Fraction(0), Fraction(claims.pruning.sparsity) - Fraction(1, 16)) * size
    yield Finding("pruning.sparsity", zeros >= wanted, f"about {claims.pruning.sparsity}", f"{zeros} of {size}")


def _selection(claims: Claims, claim: SelectionClaim) -> Iterator[Finding]:
    candidates = [Candidate(c.lam, c.rows, c.covered, c.size_sum, c.correct) for c in claim.candidates]
    try:
        found = _choose(claims, claim, candidates)
    except CPPError as error:
        yield Finding("selection.candidates", False, "a grid that the rule can judge", str(error))
        return
    yield compare("selection.lam", claim.lam, found.lam)
    for written, decision in zip(claim.candidates, found.decisions, strict=True):
        yield compare(f"selection.candidates.{written.lam}.eligible", written.eligible, decision.eligible)
        yield compare(f"selection.candidates.{written.lam}.reason", written.reason, decision.reason)
    if claims.pruning is not None:
        yield compare("pruning.lam", claims.pruning.lam, claim.lam)


def _choose(claims: Claims, claim: SelectionClaim, candidates: list[Candidate]) -> Selection:
    if claim.rule == "learn_then_test":
        return learn_then_test(candidates, str(claim.ltt_risk), str(claim.ltt_delta))
    # A later calibration may be for another alpha than the one that lambda was chosen for.
    return select_by_guardrail(candidates, str(claim.alpha))


def _evaluation(claims: Claims) -> Iterator[Finding]:
    calibration = claims.calibration
    for item in claims.evaluation:
        name = f"evaluation.{item.model}"
        band = acceptance_band(calibration.n, calibration.k, item.rows) if item.rows > 0 else None
        yield compare(f"{name}.band", item.band, band)
        yield Finding(f"{name}.counts", _possible(item, len(claims.labels)), "counts that prediction sets can have")
        if item.model not in _REFERENCES:
            yield compare(f"{name}.quantile", item.quantile, calibration.quantile)


def _possible(item: EvaluationClaim, labels: int) -> bool:
    """Counts within their ranges, and the feasibility bound: mean size <= coverage + (K - 1)."""
    ranges = 0 <= item.correct <= item.rows and 0 <= item.empty <= item.rows and 0 <= item.ece <= 1
    sizes = item.covered <= item.rows - item.empty <= item.size_sum <= (labels - 1) * item.rows + item.covered
    return ranges and item.covered >= 0 and sizes


def _verdicts(claims: Claims) -> Iterator[Finding]:
    claim, rows = claims.verdicts, {item.model: item for item in claims.evaluation}
    if claim is None:
        return
    if "chosen" not in rows or "dense" not in rows:
        yield Finding("verdicts", False, "an evaluation of the chosen and the dense model", ", ".join(rows) or "none")
        return
    chosen, dense = rows["chosen"], rows["dense"]
    mean, low, high = (from_hex(value) for value in claim.size_difference)
    yield compare("verdicts.size_difference", mean, (chosen.size_sum - dense.size_sum) / chosen.rows)
    found = contract_preservation(
        covered=chosen.covered,
        band=chosen.band,
        difference=SizeDifference(mean, low, high),
        epsilon_size=claim.epsilon_size,
    )
    yield compare("verdicts.validity", claim.validity, found.validity.verdict)
    yield compare("verdicts.validity_reason", claim.validity_reason, found.validity.reason)
    yield compare("verdicts.efficiency", claim.efficiency, found.efficiency.verdict)
    yield compare("verdicts.efficiency_reason", claim.efficiency_reason, found.efficiency.reason)
