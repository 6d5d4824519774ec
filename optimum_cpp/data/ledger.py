"""The ledger of touched rows: which rows a model has already seen, and for which purpose.

The lock on the conformal role ends with the process; the ledger travels in the split manifest from
command to command, so that a later calibration or evaluation can refuse rows that were used before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..errors import DataError, UsageError

ROLES = ("prune", "val_cal", "val_eval", "conformal", "test")
PURPOSES = ("train", *ROLES)


@dataclass(frozen=True)
class Ledger:
    """Fingerprint -> the purposes its row was used for, each one of `PURPOSES`; never changed in place.

    Raises:
        UsageError: a purpose that is not one of `PURPOSES`.
    """

    rows: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse unknown purposes."""
        for purposes in set(self.rows.values()):
            _check_purposes(purposes)

    def __len__(self) -> int:
        """Number of different rows."""
        return len(self.rows)

    def adding(self, purpose: str, fingerprints: Iterable[str]) -> Ledger:
        """A ledger in which these rows also carry `purpose`."""
        rows = dict(self.rows)
        for value in fingerprints:
            rows[value] = rows.get(value, frozenset()) | {purpose}
        return Ledger(rows)

    def merged(self, other: Ledger) -> Ledger:
        """A ledger with the rows and purposes of both."""
        rows = dict(self.rows)
        for value, purposes in other.rows.items():
            rows[value] = rows.get(value, frozenset()) | purposes
        return Ledger(rows)

    def to_dict(self) -> dict[str, list[str]]:
        """Purpose -> its fingerprints in ascending order; purposes without rows are left out."""
        found: dict[str, list[str]] = {}
        for purpose in PURPOSES:
            fingerprints = sorted(value for value, purposes in self.rows.items() if purpose in purposes)
            if fingerprints:
                found[purpose] = fingerprints
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Iterable[str]]) -> Ledger:
        """The inverse of `to_dict`."""
        rows: dict[str, frozenset[str]] = {}
        for purpose, fingerprints in values.items():
            _check_purposes((purpose,))
            for value in fingerprints:
                rows[value] = rows.get(value, frozenset()) | {purpose}
        return cls(rows)


def check_unused(fingerprints: Iterable[str], ledger: Ledger, *, purposes: Iterable[str] = PURPOSES) -> None:
    """Refuse rows that the ledger holds for any of `purposes`.

    Raises:
        DataError: at least one row was used; the sentence says how many, and for which purposes.
        UsageError: a purpose that is not one of `PURPOSES`.
    """
    refused = frozenset(purposes)
    _check_purposes(refused)
    total = used = 0
    counts: Counter[str] = Counter()
    for value in fingerprints:
        total += 1
        hits = ledger.rows.get(value, frozenset()) & refused
        used += bool(hits)
        counts.update(hits)
    if used:
        listed = ", ".join(f"{purpose}: {counts[purpose]}" for purpose in PURPOSES if counts[purpose])
        raise DataError(
            f"{used} of the {total} rows were already used ({listed}); give rows that this model has not seen."
        )


def _check_purposes(purposes: Iterable[str]) -> None:
    for purpose in purposes:
        if purpose not in PURPOSES:
            raise UsageError(f"Expected a purpose to be one of {', '.join(PURPOSES)}, but got {purpose!r}.")
