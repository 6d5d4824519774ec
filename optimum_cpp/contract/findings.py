"""One check of a contract, and the error that a failed one raises."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import ContractViolation


@dataclass(frozen=True)
class Finding:
    """One check: the field, whether it holds, and what was expected and found where it does not."""

    field: str
    holds: bool
    expected: str = ""
    found: str = ""


def compare(field: str, expected: object, found: object) -> Finding:
    """A finding that holds where both are equal."""
    return Finding(field, expected == found, str(expected), str(found))


def require(findings: Iterable[Finding]) -> None:
    """Raise a `ContractViolation` that names everything that moved."""
    moved = [finding for finding in findings if not finding.holds]
    if moved:
        listed = "; ".join(f"{f.field} (expected {_short(f.expected)}, found {_short(f.found)})" for f in moved[:3])
        more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
        raise ContractViolation(
            f"The reliability contract does not hold: {listed}{more}; restore what moved, or make a new contract "
            "with 'optimum-cli cpp calibrate'."
        )


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:100] + "…"
