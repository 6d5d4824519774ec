"""The five data roles, and the lock that keeps the conformal role closed until the model is frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

from ..errors import ConformalRoleLocked, DataError, UsageError
from .ledger import ROLES
from .manifest import RoleRows, SplitManifest
from .pool import Pool

# What "all rows that are left" counts as when a small pool is shared out.
DEFAULT_TEST_ROWS = 5000


@dataclass(frozen=True)
class RoleSizes:
    """Requested rows of each role; `val` is halved, `test` may be `"all"` rows that are left, or 0.

    Raises:
        UsageError: a size that is not a whole number in range, or an odd `val`.
    """

    prune: int = 1024
    val: int = 1024
    conformal: int = 1024
    test: int | Literal["all"] = DEFAULT_TEST_ROWS

    def __post_init__(self) -> None:
        """Refuse sizes out of range."""
        for name in ("prune", "val", "conformal"):
            check_size(f"{name}_rows", getattr(self, name), least=1)
        if self.test != "all":
            check_size("test_rows", self.test, least=0)
        if self.val % 2:
            raise UsageError(f"Expected argument `val_rows` to be even, since it is halved, but got {self.val}.")


def check_size(name: str, value: object, *, least: int) -> None:
    """A requested number of rows must be a whole number of at least `least`.

    Raises:
        UsageError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"Expected argument `{name}` to be a whole number of at least {least}, but got {value!r}.")


@dataclass(frozen=True)
class Examples:
    """The rows of one role, N of each: `labels` index the label names, `indices` the pool."""

    texts: tuple[str, ...] = ()
    labels: tuple[int, ...] = ()
    fingerprints: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.texts)

    def __repr__(self) -> str:
        """Only the number of rows: thousands of texts help nobody in a traceback."""
        return f"Examples({len(self)} rows)"


def take_rows(pool: Pool, rows: RoleRows) -> Examples:
    """The pool's rows at these positions."""
    return Examples(
        texts=tuple(pool.texts[row] for row in rows.indices),
        labels=tuple(pool.labels[row] for row in rows.indices),
        fingerprints=rows.fingerprints,
        indices=rows.indices,
    )


class DataRoles:
    """`prune`, `val_cal`, `val_eval` and `test` as `Examples`, and `conformal` behind a lock.

    Whatever is chosen with the conformal rows in sight loses the coverage guarantee. Their texts and
    labels are therefore kept out of this object's attributes, printed form and pickles; reading
    `conformal` raises until the object that freezes the model calls `unlock_conformal`.
    """

    def __init__(
        self,
        *,
        prune: Examples,
        val_cal: Examples,
        val_eval: Examples,
        conformal: Examples,
        test: Examples,
        label_names: tuple[str, ...],
        manifest: SplitManifest,
    ) -> None:
        """`manifest` describes exactly these rows; `draw_roles` and its siblings make both together."""
        self.prune = prune
        self.val_cal = val_cal
        self.val_eval = val_eval
        self.test = test
        self.label_names = label_names
        self.manifest = manifest
        self._conformal = _LockedExamples(conformal)

    @property
    def conformal(self) -> Examples:
        """The rows of the final quantile.

        Raises:
            ConformalRoleLocked: no model has been frozen yet.
        """
        return self._conformal.read()

    @property
    def frozen_digest(self) -> str | None:
        """Digest of the frozen model that the conformal role was unlocked for, None while locked."""
        return self._conformal.digest

    @property
    def sizes(self) -> dict[str, int]:
        """Role -> number of its rows, the conformal role's included."""
        return {role: len(self.manifest.roles[role]) for role in ROLES}

    def unlock_conformal(self, frozen_digest: str) -> None:
        """Open the conformal role for one frozen model; the same digest may be given again.

        Raises:
            ConformalRoleLocked: it was opened for another model, which may have been chosen by it.
            UsageError: an empty digest.
        """
        self._conformal.unlock(frozen_digest)

    def __repr__(self) -> str:
        """The number of rows of each role, and whether the conformal role is locked."""
        sizes = ", ".join(f"{role}={size}" for role, size in self.sizes.items())
        return f"DataRoles({sizes}, {'locked' if self.frozen_digest is None else 'unlocked'})"


class _LockedExamples:
    """Examples that show only their number until they are unlocked."""

    __slots__ = ("_digest", "_open")

    def __init__(self, examples: Examples) -> None:
        # A closure keeps the rows out of reach of vars(), pprint, debuggers' attribute views and pickles.
        self._open: Callable[[], Examples] = lambda: examples
        self._digest: str | None = None

    @property
    def digest(self) -> str | None:
        return self._digest

    def read(self) -> Examples:
        if self._digest is None:
            raise ConformalRoleLocked(
                "The conformal role is locked until the model is frozen, since a model chosen with its "
                "rows in sight has no coverage guarantee; choose with val_cal and val_eval, and read it "
                "after the freeze."
            )
        return self._open()

    def unlock(self, frozen_digest: str) -> None:
        if not isinstance(frozen_digest, str) or not frozen_digest:
            raise UsageError(
                f"Expected argument `frozen_digest` to be the digest of a frozen model, but got {frozen_digest!r}."
            )
        if self._digest is not None and self._digest != frozen_digest:
            raise ConformalRoleLocked(
                f"The conformal role was already opened for the model {self._digest} and cannot serve "
                f"{frozen_digest}; draw roles with new conformal rows."
            )
        self._digest = frozen_digest

    def __repr__(self) -> str:
        return f"<conformal role, {len(self._open())} rows, {'locked' if self._digest is None else 'unlocked'}>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise ConformalRoleLocked(
            "Data roles cannot be pickled or copied deeply, since their conformal rows would leave the lock; "
            "save the split manifest and draw the roles from it again."
        )


def roles_from_manifest(pool: Pool, manifest: SplitManifest) -> DataRoles:
    """The roles that a manifest describes, drawn again from the same pool; the conformal role is locked.

    Raises:
        DataError: the pool is not the one the manifest was written for; the sentence names the row.
    """
    for role in ROLES:
        rows = manifest.roles[role]
        for index, expected in zip(rows.indices, rows.fingerprints, strict=True):
            if index >= len(pool):
                raise DataError(
                    f"The split manifest puts row {index} into role {role}, but {pool.source.id} has only "
                    f"{len(pool)} rows; give the data set, revision and splits that the manifest names."
                )
            if pool.fingerprint(index) != expected:
                raise DataError(
                    f"{pool.place(index)} of {pool.source.id} is not the row that the split manifest has "
                    f"in role {role}; give the data set, revision, splits and columns that the manifest "
                    "names."
                )
    return assemble_roles(pool, manifest)


def assemble_roles(pool: Pool, manifest: SplitManifest) -> DataRoles:
    """Roles whose rows the manifest has taken from this very pool."""
    examples: Mapping[str, Examples] = {role: take_rows(pool, manifest.roles[role]) for role in ROLES}
    return DataRoles(**examples, label_names=pool.label_names, manifest=manifest)
