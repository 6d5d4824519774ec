"""Drawing the roles, in the order that keeps conformal and test rows exchangeable.

1. Clean the pool of duplicates, by a rule that does not depend on how conformal and test are told
apart. 2. Draw conformal and test together by simple random sampling and split them at random.
3. Draw the rest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ..errors import DataError, UsageError
from .allotment import Request, allot_rows
from .duplicates import DuplicateFindings, clean_duplicates, near_duplicates
from .fingerprints import text_digest
from .ledger import ROLES, Ledger, check_unused
from .manifest import RoleRows, SplitManifest
from .pool import Pool, read_pool
from .roles import DataRoles, RoleSizes, assemble_roles, check_size
from .sources import OpenedData, open_data
from .splits import check_role_splits, split_names

if TYPE_CHECKING:
    import datasets

    DatasetLike: TypeAlias = str | os.PathLike[str] | datasets.Dataset | datasets.DatasetDict


def draw_roles(
    pool: Pool,
    sizes: RoleSizes,
    *,
    seed: int,
    on_duplicates: str = "drop",
    role_splits: Mapping[str, str] | None = None,
) -> DataRoles:
    """Draw the five disjoint roles from a pool.

    `role_splits` (prune, val, conformal, test -> splits joined by `+`) restricts roles to rows of their
    splits. Rows that are fewer than the requested sizes are shared out in proportion, which the
    manifest records as an exception.

    Raises:
        DataError: duplicates under the policy `error`, a split that the pool does not have, or a role
            that would be empty.
        UsageError: a seed, a policy or `role_splits` out of range.
    """
    wanted = {"prune": sizes.prune, "val": sizes.val, "conformal": sizes.conformal, "test": sizes.test}
    splits = _splits_of_roles(pool, role_splits) if role_splits else dict.fromkeys(wanted, pool.source.splits)
    requests = [Request(role, size, frozenset(splits[role])) for role, size in wanted.items()]
    return _draw(pool, requests, seed=seed, on_duplicates=on_duplicates, ledger=Ledger())


def draw_calibration_roles(
    pool: Pool,
    conformal_rows: int,
    test_rows: int | Literal["all"],
    *,
    seed: int,
    used: Ledger,
    val_rows: int = 0,
    on_duplicates: str = "drop",
) -> DataRoles:
    """Draw conformal and test rows, and `val_rows` for val_cal, to recalibrate a model on new data.

    The manifest's ledger takes over `used`: every row that the model has seen.

    Raises:
        DataError: rows of the pool that were already used, duplicates under the policy `error`, or a
            role that would be empty.
        UsageError: a size, a seed or a policy out of range.
    """
    check_size("conformal_rows", conformal_rows, least=1)
    check_size("val_rows", val_rows, least=0)
    if test_rows != "all":
        check_size("test_rows", test_rows, least=0)
    check_unused(map(text_digest, pool.texts), used)
    wanted: dict[str, int | Literal["all"]] = {
        "val_cal": val_rows,
        "conformal": conformal_rows,
        "test": test_rows,
    }
    requests = [Request(role, size, frozenset(pool.source.splits)) for role, size in wanted.items()]
    return _draw(pool, requests, seed=seed, on_duplicates=on_duplicates, ledger=used)


def roles_from_datasets(
    *,
    prune: DatasetLike,
    validation: DatasetLike,
    conformal: DatasetLike,
    test: DatasetLike | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    label_names: Sequence[str] = (),
    seed: int,
    on_duplicates: str = "error",
) -> DataRoles:
    """The roles as separately given data sets; validation is halved at random, by the seed.

    They are joined to one pool in the order prune, validation, conformal, test, which the manifest's
    positions refer to. Under `drop`, prune and validation keep their rows first; of a text that is in
    conformal and test a random copy stays, so that neither is favoured.

    Raises:
        DataError: a data set with several splits, duplicates under the policy `error`, a role without
            rows, or anything that `load_pool` refuses.
        UsageError: a seed or a policy out of range.
    """
    generator = _generator(seed)
    given = {"prune": prune, "validation": validation, "conformal": conformal, "test": test}
    opened = {name: _one_split(name, data) for name, data in given.items() if data is not None}
    joined = OpenedData(
        id="+".join(dict.fromkeys(data.id for data in opened.values())),
        revision=None,
        splits={name: next(iter(data.splits.values())) for name, data in opened.items()},
    )
    pool = read_pool(joined, text_column=text_column, label_column=label_column, label_names=label_names)
    evaluated = [row for row, split in enumerate(pool.row_splits) if split in ("conformal", "test")]
    first_evaluated = evaluated[0] if evaluated else len(pool)
    order = [*range(first_evaluated), *generator.permutation(np.array(evaluated, dtype=np.int64)).tolist()]
    kept, findings = clean_duplicates(pool.texts, pool.labels, on_duplicates, describe=pool.place, order=order)
    rows = {name: [row for row in kept if pool.row_splits[row] == name] for name in given}
    halves = generator.permutation(np.array(rows.pop("validation"), dtype=np.int64)).tolist()
    rows["val_cal"], rows["val_eval"] = halves[: len(halves) // 2], halves[len(halves) // 2 :]
    for role in ROLES:
        if not rows[role] and (role != "test" or test is not None):
            raise DataError(f"Role {role} would be empty: its data set has too few usable rows; give more.")
    return _finish(pool, rows, seed=seed, exceptions=[], findings=findings, ledger=Ledger())


def _draw(pool: Pool, requests: Sequence[Request], *, seed: int, on_duplicates: str, ledger: Ledger) -> DataRoles:
    generator = _generator(seed)
    kept, findings = clean_duplicates(pool.texts, pool.labels, on_duplicates, describe=pool.place)
    counts, exceptions = allot_rows(requests, Counter(pool.row_splits[row] for row in kept))
    splits = {request.role: request.splits for request in requests}
    taken: set[int] = set()

    def sample(role: str, size: int) -> list[int]:
        free = [row for row in kept if row not in taken and pool.row_splits[row] in splits[role]]
        if len(free) < size:
            raise DataError(
                f"Role {role} needs {size} rows of split {'+'.join(sorted(splits[role]))}, but only "
                f"{len(free)} are left; ask for fewer rows or give the roles splits of their own."
            )
        drawn: list[int] = generator.permutation(np.array(free, dtype=np.int64))[:size].tolist()
        taken.update(drawn)
        return drawn

    evaluated = sample("conformal", counts["conformal"] + counts["test"])
    rows = {"conformal": evaluated[: counts["conformal"]], "test": evaluated[counts["conformal"] :]}
    for request in requests:
        if request.role not in rows:
            rows[request.role] = sample(request.role, counts[request.role])
    if "val" in rows:
        val = rows.pop("val")
        rows["val_cal"], rows["val_eval"] = val[: len(val) // 2], val[len(val) // 2 :]
    return _finish(pool, rows, seed=seed, exceptions=exceptions, findings=findings, ledger=ledger)


def _finish(
    pool: Pool,
    rows: Mapping[str, Sequence[int]],
    *,
    seed: int,
    exceptions: Sequence[str],
    findings: DuplicateFindings,
    ledger: Ledger,
) -> DataRoles:
    """Count near duplicates across the roles, and write everything down in the manifest."""
    drawn = {role: tuple(rows.get(role, ())) for role in ROLES}
    near = near_duplicates({role: [pool.texts[row] for row in drawn[role]] for role in ROLES})
    manifest = SplitManifest(
        dataset=pool.source,
        seed=seed,
        exceptions=tuple(exceptions),
        duplicates=findings.with_near(near),
        roles={role: RoleRows.of(pool, drawn[role]) for role in ROLES},
        ledger=ledger,
    )
    return assemble_roles(pool, manifest)


def _splits_of_roles(pool: Pool, role_splits: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    check_role_splits(role_splits)
    splits = {role: split_names(names) for role, names in role_splits.items()}
    for role, names in splits.items():
        for name in names:
            if name not in pool.source.splits:
                raise DataError(
                    f"Role {role} is to be drawn from split {name!r}, but the pool's splits are "
                    f"{', '.join(pool.source.splits)}."
                )
    return splits


def _one_split(name: str, data: DatasetLike) -> OpenedData:
    opened = open_data(data)
    if len(opened.splits) != 1:
        raise DataError(
            f"Expected the {name} data set to be one split, but {opened.id} has {', '.join(opened.splits)}; select one."
        )
    return opened


def _generator(seed: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"Expected argument `seed` to be a whole number of at least 0, but got {seed!r}.")
    return np.random.Generator(np.random.PCG64(seed))
