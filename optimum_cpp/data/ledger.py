"""The ledger of touched rows: whose texts a model has already seen, and for which purpose.

The lock on the conformal role ends with the process; the ledger travels in the split manifest from
command to command, so that a later calibration or evaluation can refuse rows that were used before. A
row is known by the digest of its folded text: a used text is used, however it is spelled and labelled.
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
    """Text digest -> the purposes its row was used for, each one of `PURPOSES`; never changed in place.

    Raises:
        UsageError: a purpose that is not one of `PURPOSES`.
    """

    rows: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse unknown purposes."""
        for purposes in set(self.rows.values()):
            _check_purposes(purposes)

    def __len__(self) -> int:
        """Number of different texts."""
        return len(self.rows)

    def adding(self, purpose: str, texts: Iterable[str]) -> Ledger:
        """A ledger in which the rows with these text digests also carry `purpose`."""
        rows = dict(self.rows)
        for value in texts:
            rows[value] = rows.get(value, frozenset()) | {purpose}
        return Ledger(rows)

    def merged(self, other: Ledger) -> Ledger:
        """A ledger with the rows and purposes of both."""
        rows = dict(self.rows)
        for value, purposes in other.rows.items():
            rows[value] = rows.get(value, frozenset()) | purposes
        return Ledger(rows)

    def to_dict(self) -> dict[str, list[str]]:
        """Purpose -> its text digests in ascending order; purposes without rows are left out."""
        found: dict[str, list[str]] = {}
        for purpose in PURPOSES:
            texts = sorted(value for value, purposes in self.rows.items() if purpose in purposes)
            if texts:
                found[purpose] = texts
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Iterable[str]]) -> Ledger:
        """The inverse of `to_dict`."""
        rows: dict[str, frozenset[str]] = {}
        for purpose, texts in values.items():
            _check_purposes((purpose,))
            for value in texts:
                rows[value] = rows.get(value, frozenset()) | {purpose}
        return cls(rows)


def check_unused(texts: Iterable[str], ledger: Ledger, *, purposes: Iterable[str] = PURPOSES) -> None:
    """Refuse rows whose text digests the ledger holds for any of `purposes`.

    Raises:
        DataError: at least one row was used; the sentence says how many, and for which purposes.
        UsageError: a purpose that is not one of `PURPOSES`.
    """
    refused = frozenset(purposes)
    _check_purposes(refused)
    total = used = 0
    counts: Counter[str] = Counter()
    for value in texts:
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
