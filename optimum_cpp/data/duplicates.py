"""Duplicate rows: exact ones (equal folded texts) and near ones across roles.

Duplicates between roles would let a row vouch for itself. Exact ones are cleaned before any role is
drawn, so the coverage guarantee speaks of the population without duplicates; near ones are counted.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..configuration import DUPLICATE_POLICIES
from ..errors import DataError, UsageError
from .fingerprints import folded

if TYPE_CHECKING:
    from datasketch import MinHash

GRAM_WORDS = 5
# Sets with Jaccard index J share a band with probability 1 - (1 - J^4)^24.
BANDS, BAND_ROWS = 24, 4


@dataclass(frozen=True)
class DuplicateFindings:
    """What was found and done.

    `found`: rows whose folded text an earlier row has; `dropped`: how many of them left the pool;
    `contradictory`: groups of equal folded texts that carry more than one label; `near`: pairs of
    near-duplicate rows by the pair of roles they lie in (`"conformal/test"`), pairs of roles without
    any left out.
    """

    policy: str
    found: int
    dropped: int
    contradictory: int
    near: Mapping[str, int] = field(default_factory=dict)

    def with_near(self, near: Mapping[str, int]) -> DuplicateFindings:
        """The same findings with the near duplicates of the drawn roles."""
        return replace(self, near=dict(near))


def duplicate_groups(texts: Sequence[str], order: Sequence[int] | None = None) -> list[tuple[int, ...]]:
    """Groups of at least two rows with equal folded texts.

    Rows, within a group and by their first row between groups, follow `order` (default: as given).
    """
    groups: dict[str, list[int]] = {}
    for row in range(len(texts)) if order is None else order:
        groups.setdefault(folded(texts[row]), []).append(row)
    return [tuple(rows) for rows in groups.values() if len(rows) > 1]


def clean_duplicates(
    texts: Sequence[str],
    labels: Sequence[int],
    policy: str,
    *,
    describe: Callable[[int], str],
    order: Sequence[int] | None = None,
) -> tuple[list[int], DuplicateFindings]:
    """The rows to draw from, ascending, and the findings.

    `drop` keeps the first row (in `order`) of each group of equal folded texts, `report` keeps all,
    `error` refuses. `describe(row)` names the place of a row for the error.

    Raises:
        DataError: `policy` is `error` and a duplicate was found.
        UsageError: an unknown policy.
    """
    if policy not in DUPLICATE_POLICIES:
        raise UsageError(
            f"Expected argument `on_duplicates` to be one of {', '.join(DUPLICATE_POLICIES)}, but got {policy!r}."
        )
    groups = duplicate_groups(texts, order)
    repeats = {row for rows in groups for row in rows[1:]}
    if repeats and policy == "error":
        first, second = groups[0][:2]
        raise DataError(
            f"{len(repeats)} rows repeat the text of another row (first: {describe(second)} repeats "
            f"{describe(first)}); remove them, or pass on_duplicates='drop' to keep the first of each."
        )
    dropped = repeats if policy == "drop" else set()
    findings = DuplicateFindings(
        policy=policy,
        found=len(repeats),
        dropped=len(dropped),
        contradictory=sum(len({labels[row] for row in rows}) > 1 for rows in groups),
    )
    return [row for row in range(len(texts)) if row not in dropped], findings


def word_grams(text: str) -> frozenset[str]:
    """The set of runs of 5 consecutive words of the folded text; a shorter text is one gram as a whole."""
    words = folded(text).split(" ")
    if len(words) < GRAM_WORDS:
        return frozenset((" ".join(words),))
    return frozenset(" ".join(words[i : i + GRAM_WORDS]) for i in range(len(words) - GRAM_WORDS + 1))


def near_duplicates(roles: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Pairs of rows in different roles whose word 5-grams have a Jaccard index of at least 0.8.

    MinHash finds the candidates, and the index of each is then computed exactly, so no pair is counted
    wrongly; one whose index is just 0.8 is missed with probability 3e-6. The largest role is only ever
    looked up, so memory grows with the other roles.

    Returns:
        Counts by pair of roles (`"conformal/test"`, in the order of `roles`), zeros left out.
    """
    *smaller, largest = sorted(roles, key=lambda name: len(roles[name]))
    index = _SimilarSets()
    pairs: Counter[tuple[str, str]] = Counter()
    for name in (*smaller, largest):
        sketched = list(_sketched(roles[name])) if name != largest else _sketched(roles[name])
        for sketch, grams in sketched:
            pairs.update({(name, other): count for other, count in index.similar(sketch, grams).items()})
        if name != largest:
            for sketch, grams in sketched:
                index.add(name, sketch, grams)
    ordered = {(a, b): pairs[a, b] + pairs[b, a] for a, b in itertools.combinations(roles, 2)}
    return {f"{a}/{b}": count for (a, b), count in ordered.items() if count}


def _sketched(texts: Sequence[str]) -> Iterator[tuple[MinHash, frozenset[str]]]:
    """MinHash and gram set of each text."""
    from datasketch import MinHash

    sets, copies = itertools.tee(map(word_grams, texts))
    encoded = ([gram.encode("utf-8", errors="surrogatepass") for gram in grams] for grams in copies)
    return zip(MinHash.generator(encoded, num_perm=BANDS * BAND_ROWS, seed=1), sets, strict=True)


class _SimilarSets:
    """Gram sets of roles, looked up by what is similar; equal sets are stored once."""

    def __init__(self) -> None:
        from datasketch import MinHashLSH

        self._index = MinHashLSH(num_perm=BANDS * BAND_ROWS, params=(BANDS, BAND_ROWS))
        self._roles: dict[frozenset[str], Counter[str]] = {}

    def add(self, role: str, sketch: MinHash, grams: frozenset[str]) -> None:
        if grams not in self._roles:
            self._roles[grams] = Counter()
            self._index.insert(grams, sketch)
        self._roles[grams][role] += 1

    def similar(self, sketch: MinHash, grams: frozenset[str]) -> Counter[str]:
        """Role -> number of its rows whose stored set is a near duplicate of `grams`."""
        found: Counter[str] = Counter()
        for other in self._index.query(sketch):
            if _is_near(grams, other):
                found.update(self._roles[other])
        return found


def _is_near(a: frozenset[str], b: frozenset[str]) -> bool:
    """Jaccard index of at least 0.8, in whole numbers; sizes are compared first, because that is cheaper."""
    if 5 * min(len(a), len(b)) < 4 * max(len(a), len(b)):
        return False
    shared = len(a & b)
    return 5 * shared >= 4 * (len(a) + len(b) - shared)
