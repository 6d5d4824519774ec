"""The `split` option: splits to pool, or the split of each role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import UsageError

DRAWN = ("prune", "val", "conformal", "test")


def parse_splits(entries: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """(splits to pool, in order; role -> its splits joined by `+`, empty when all roles share the pool).

    Entries are either splits (`train`, `train+validation`) or one `role=split` for each of prune, val,
    conformal and test; no entries at all mean every split.

    Raises:
        UsageError: both kinds at once, an unknown, repeated or missing role, an empty name, or different
            splits for conformal and test, whose rows would then not be exchangeable.
    """
    assigned = [entry for entry in entries if "=" in entry]
    if not assigned:
        return _unique([name for entry in entries for name in split_names(entry)]), {}
    if len(assigned) < len(entries):
        plain = next(entry for entry in entries if "=" not in entry)
        raise UsageError(f"Expected argument `split` to name a role for every entry, but {plain!r} names none.")
    role_splits: dict[str, str] = {}
    for entry in assigned:
        role, _, names = entry.partition("=")
        if role not in DRAWN:
            raise UsageError(f"Expected a role in `split` to be one of {', '.join(DRAWN)}, but got {entry!r}.")
        if role in role_splits:
            raise UsageError(f"Expected argument `split` to name each role once, but {role!r} stands there twice.")
        role_splits[role] = "+".join(split_names(names))
    check_role_splits(role_splits)
    return _unique([name for names in role_splits.values() for name in split_names(names)]), role_splits


def check_role_splits(role_splits: Mapping[str, str]) -> None:
    """Every role has splits, and conformal and test the same ones.

    Raises:
        UsageError: as in `parse_splits`.
    """
    missing = [role for role in DRAWN if role not in role_splits]
    if missing:
        raise UsageError(f"Expected argument `split` to name a split for every role, but {missing[0]!r} has none.")
    if set(split_names(role_splits["conformal"])) != set(split_names(role_splits["test"])):
        raise UsageError(
            "Expected roles conformal and test to share their splits, since coverage holds only for rows "
            f"that are exchangeable, but got conformal={role_splits['conformal']} and "
            f"test={role_splits['test']}."
        )


def split_names(joined: str) -> tuple[str, ...]:
    """The splits in `"train+validation"`.

    Raises:
        UsageError: one of the names is empty.
    """
    names = tuple(name.strip() for name in joined.split("+"))
    if not all(names):
        raise UsageError(f"Expected argument `split` to name splits joined by '+', but got {joined!r}.")
    return names


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
