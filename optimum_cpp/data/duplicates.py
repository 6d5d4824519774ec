"""Duplicate rows: exact ones (equal folded texts) and near ones across roles.

Duplicates between roles would let a row vouch for itself. Exact ones are cleaned before any role is
drawn, so the coverage guarantee speaks of the population without duplicates; near ones are counted.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..configuration import DUPLICATE_POLICIES
from ..errors import DataError, UsageError
from .fingerprints import folded

GRAM_WORDS = 5


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
    """Exact number of pairs of rows in different roles whose word 5-grams have a Jaccard index of at
    least 0.8, by pair of roles (`"conformal/test"`, in the order of `roles`), zeros left out.

    Sets x and y with such an index share at least ceil(0.8 |x|) and ceil(0.8 |y|) grams, so in
    any common order of the grams their prefixes of |x| - ceil(0.8 |x|) + 1 and |y| - ceil(0.8 |y|) + 1
    meet, and their sizes differ by at most a factor 0.8 (the prefix and size filters of Bayardo et al.,
    "Scaling Up All Pairs Similarity Search", 2007). With rare grams first the prefixes meet seldom.
    The largest role is only ever looked up, so memory grows with the other roles.
    """
    *smaller, largest = sorted(roles, key=lambda name: len(roles[name]))
    indexed = {name: [word_grams(text) for text in roles[name]] for name in smaller}
    index = _GramIndex(Counter(gram for sets in indexed.values() for grams in sets for gram in grams))
    pairs: Counter[tuple[str, str]] = Counter()
    for name in smaller:
        for grams in indexed[name]:
            pairs.update({(name, other): count for other, count in index.similar(grams).items()})
        for grams in indexed[name]:
            index.add(name, grams)
    for text in roles[largest]:
        pairs.update({(largest, other): count for other, count in index.similar(word_grams(text)).items()})
    ordered = {(a, b): pairs[a, b] + pairs[b, a] for a, b in itertools.combinations(roles, 2)}
    return {f"{a}/{b}": count for (a, b), count in ordered.items() if count}


class _GramIndex:
    """Inverted index from the grams of each set's prefix to the set; equal sets are stored once."""

    def __init__(self, frequency: Mapping[str, int]) -> None:
        # Of every gram in the sets that will be added: how many of them hold it.
        self._frequency = frequency
        self._roles: dict[frozenset[str], Counter[str]] = {}
        self._sets_by_gram: defaultdict[str, list[frozenset[str]]] = defaultdict(list)

    def add(self, role: str, grams: frozenset[str]) -> None:
        if grams not in self._roles:
            self._roles[grams] = Counter()
            for gram in self._prefix(grams):
                self._sets_by_gram[gram].append(grams)
        self._roles[grams][role] += 1

    def similar(self, grams: frozenset[str]) -> Counter[str]:
        """Role -> number of its rows whose stored set is a near duplicate of `grams`."""
        found: Counter[str] = Counter()
        candidates = {other for gram in self._prefix(grams) for other in self._sets_by_gram.get(gram, ())}
        for other in candidates:
            if _is_near(grams, other):
                found.update(self._roles[other])
        return found

    def _prefix(self, grams: frozenset[str]) -> list[str]:
        """The rarest |grams| - ceil(0.8 |grams|) + 1, less those that no stored set holds."""
        known = sorted((self._frequency[gram], gram) for gram in grams if gram in self._frequency)
        length = len(known) - (4 * len(grams) + 4) // 5 + 1
        return [gram for _, gram in known[: max(length, 0)]]


def _is_near(a: frozenset[str], b: frozenset[str]) -> bool:
    """Jaccard index of at least 0.8, in whole numbers; sizes are compared first, because that is cheaper."""
    if 5 * min(len(a), len(b)) < 4 * max(len(a), len(b)):
        return False
    shared = len(a & b)
    return 5 * shared >= 4 * (len(a) + len(b) - shared)
