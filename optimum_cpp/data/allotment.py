"""How many rows each role gets: what was asked for, or a fair share of a pool that is too small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import DataError
from .roles import DEFAULT_TEST_ROWS


@dataclass(frozen=True)
class Request:
    """One role's wish: so many rows (`"all"` that are left, for test) out of these splits."""

    role: str
    size: int | Literal["all"]
    splits: frozenset[str]

    @property
    def nominal(self) -> int:
        """The size by which a small pool is shared out."""
        return DEFAULT_TEST_ROWS if self.size == "all" else self.size


def allot_rows(requests: Sequence[Request], rows: Mapping[str, int]) -> tuple[dict[str, int], list[str]]:
    """(role -> number of rows, sentences about departures from the request).

    `rows` is split -> number of rows. Roles whose splits overlap compete for the same rows. Where
    those are fewer than requested, each role but test gets floor(size * rows / requested), `val` an even
    number, and test the rest.

    Raises:
        DataError: a role would be empty.
    """
    counts: dict[str, int] = {}
    exceptions: list[str] = []
    for competing in _competing(requests):
        splits = frozenset[str]().union(*(request.splits for request in competing))
        available = sum(rows.get(split, 0) for split in splits)
        requested = sum(request.nominal for request in competing)
        share = _share_out(competing, rows, available, requested)
        for request in competing:
            if request.size and not share[request.role]:
                raise DataError(
                    f"Role {request.role} would be empty: {requested} rows are requested of split "
                    f"{'+'.join(sorted(splits))}, which has {available} usable rows; give more data or ask "
                    "for fewer rows."
                )
        if available < requested:
            listed = ", ".join(f"{role} {size}" for role, size in share.items())
            exceptions.append(
                f"Split {'+'.join(sorted(splits))} has {available} usable rows, fewer than the {requested} "
                f"requested, so they are shared out: {listed}."
            )
        counts |= share
    return counts, exceptions


def _competing(requests: Sequence[Request]) -> list[list[Request]]:
    """The requests in groups that share splits, directly or through others."""
    groups: list[list[Request]] = []
    for request in requests:
        joined = [group for group in groups if any(request.splits & other.splits for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([other for group in joined for other in group] + [request])
    return groups


def _share_out(competing: Sequence[Request], rows: Mapping[str, int], available: int, requested: int) -> dict[str, int]:
    scarce = available < requested
    share: dict[str, int] = {}
    for request in competing:
        size = request.nominal * available // requested if scarce else request.nominal
        share[request.role] = size - size % 2 if request.role == "val" else size
    for request in competing:
        if request.role == "test" and request.size and (scarce or request.size == "all"):
            others = sum(size for role, size in share.items() if role != "test")
            own = sum(rows.get(split, 0) for split in request.splits)
            # Conformal and test rows come from the same splits, and are drawn before all others.
            share["test"] = min(available - others, own - share.get("conformal", 0))
    return share
