"""The split manifest: which row went into which role, readable and checkable without the data.

It holds positions, fingerprints and text digests of rows, never their texts. `FORMAT.md` beside this file
specifies it.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from ..configuration import DUPLICATE_POLICIES
from ..errors import DataError
from ..strict_json import parse_json
from .duplicates import DuplicateFindings
from .fingerprints import text_digest
from .ledger import PURPOSES, ROLES, Ledger
from .pool import DatasetSource, Pool

SCHEMA = 1


@dataclass(frozen=True)
class RoleRows:
    """The rows of one role in the order they were drawn.

    Attributes:
        indices: positions in the pool.
        fingerprints: of text and label, each 64 hex digits.
        texts: digests of the folded texts alone, each 64 hex digits.
    """

    indices: tuple[int, ...] = field(default=(), repr=False)
    fingerprints: tuple[str, ...] = field(default=(), repr=False)
    texts: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, pool: Pool, indices: Sequence[int]) -> RoleRows:
        """The rows of a pool at these positions."""
        texts = tuple(text_digest(pool.texts[row]) for row in indices)
        return cls(tuple(indices), tuple(map(pool.fingerprint, indices)), texts)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.indices)


@dataclass(frozen=True)
class SplitManifest:
    """What `split_manifest.json` says (schema 1).

    `roles` holds all of prune, val_cal, val_eval, conformal and test, which share no row; `exceptions`
    are sentences about departures from the requested sizes; `ledger` lists rows touched beyond the
    roles (training, or the roles of a predecessor).

    Raises:
        DataError: a role is missing, two roles (or one role twice) hold the same row, or a role has not
            one fingerprint and one text digest for each row.
    """

    dataset: DatasetSource
    seed: int
    exceptions: tuple[str, ...]
    duplicates: DuplicateFindings
    roles: Mapping[str, RoleRows]
    ledger: Ledger = field(default_factory=Ledger)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Refuse roles that overlap or are incomplete."""
        if set(self.roles) != set(ROLES):
            raise DataError(
                f"Expected the split manifest's roles to be {', '.join(ROLES)}, but got {', '.join(self.roles)}."
            )
        owner: dict[int, str] = {}
        for role in ROLES:
            rows = self.roles[role]
            if not len(rows.indices) == len(rows.fingerprints) == len(rows.texts):
                raise DataError(
                    f"Expected role {role} of the split manifest to hold a fingerprint and a text digest for each "
                    f"row, but it has {len(rows.indices)} rows, {len(rows.fingerprints)} fingerprints and "
                    f"{len(rows.texts)} text digests."
                )
            for index in rows.indices:
                if index in owner:
                    raise DataError(
                        f"Expected the split manifest's roles to be disjoint, but row {index} is in "
                        f"{owner[index]} and in {role}."
                    )
                owner[index] = role

    def used(self) -> Ledger:
        """Every row that this model has seen: those of the roles and those of the ledger."""
        ledger = self.ledger
        for role in ROLES:
            ledger = ledger.adding(role, self.roles[role].texts)
        return ledger

    def with_training_texts(self, texts: Iterable[str]) -> SplitManifest:
        """A manifest whose ledger also names the rows with these text digests as trained on.

        Raises:
            DataError: some of them are conformal or test rows, which training must not touch.
        """
        rows = tuple(texts)
        for role in ("conformal", "test"):
            shared = len(set(rows) & set(self.roles[role].texts))
            if shared:
                raise DataError(
                    f"{shared} of the {len(rows)} training rows belong to role {role}; train on other "
                    "rows, or the coverage guarantee is void."
                )
        return replace(self, ledger=self.ledger.adding("train", rows))

    def to_dict(self) -> dict[str, Any]:
        """The manifest as plain JSON values."""
        return {
            "schema": self.schema,
            "dataset": asdict(self.dataset) | {"splits": list(self.dataset.splits)},
            "seed": self.seed,
            "exceptions": list(self.exceptions),
            "duplicates": asdict(self.duplicates),
            "roles": {
                role: {
                    "indices": list(rows.indices),
                    "fingerprints": list(rows.fingerprints),
                    "texts": list(rows.texts),
                }
                for role, rows in self.roles.items()
            },
            "ledger": self.ledger.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Any) -> SplitManifest:
        """The inverse of `to_dict`, strict about every field.

        Raises:
            DataError: a field is missing, unknown or of the wrong kind, or the roles overlap.
        """
        schema = values.get("schema") if isinstance(values, dict) else None
        if isinstance(schema, int) and schema > SCHEMA:
            raise DataError(
                f"The split manifest has schema {schema}, but this version of optimum-cpp reads up to "
                f"{SCHEMA}; update optimum-cpp."
            )
        top = _fields(values, "the split manifest", _TOP)
        if schema != SCHEMA:
            _wrong("schema", str(SCHEMA), schema)
        source = _fields(top["dataset"], "dataset", _SOURCE)
        roles = _fields(top["roles"], "roles", dict.fromkeys(ROLES, dict))
        return cls(
            dataset=DatasetSource(**source | {"splits": _strings(source["splits"], "dataset.splits")}),
            seed=top["seed"],
            exceptions=_strings(top["exceptions"], "exceptions"),
            duplicates=_duplicates(top["duplicates"]),
            roles={role: _role(roles[role], f"roles.{role}") for role in ROLES},
            ledger=_ledger(top["ledger"]),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file whole or not at all: a reader finds the old manifest or the new one."""
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        content = json.dumps(self.to_dict(), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            with temporary.open("xb") as file:
                file.write(content.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SplitManifest:
        """Read and check the file.

        Raises:
            DataError: it is missing, not strict JSON, or not a manifest.
        """
        try:
            values = parse_json(Path(path).read_bytes())
        except OSError as error:
            raise DataError(f"The split manifest {os.fspath(path)} cannot be read ({error.strerror}).") from error
        except DataError as error:
            raise DataError(f"The split manifest {os.fspath(path)} is not strict JSON: {error}") from error
        return cls.from_dict(values)


_TOP = {
    "schema": int, "dataset": dict, "seed": int, "exceptions": list, "duplicates": dict, "roles": dict,
    "ledger": dict,
}  # fmt: skip
_SOURCE = {
    "id": str, "revision": (str, type(None)), "splits": list, "text_column": str, "label_column": str,
    "digest": str,
}  # fmt: skip
_DUPLICATES = {"policy": str, "found": int, "dropped": int, "contradictory": int, "near": dict}


def _wrong(where: str, expected: str, got: Any) -> NoReturn:
    shown = repr(got)
    shown = shown if len(shown) <= 60 else shown[:60] + "…"
    raise DataError(f"Expected `{where}` of the split manifest to be {expected}, but got {shown}.")


def _fields(value: Any, where: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """`value` as an object with exactly these fields, each of its kind."""
    if not isinstance(value, dict):
        raise DataError(f"Expected {where} to be a JSON object, but got {type(value).__name__}.")
    for name in kinds:
        if name not in value:
            raise DataError(f"Expected {where} to hold `{name}`, but it is missing.")
    for name, entry in value.items():
        if name not in kinds:
            raise DataError(f"Expected {where} to hold only {', '.join(kinds)}, but it also has `{name}`.")
        if not isinstance(entry, kinds[name]) or isinstance(entry, bool):
            accepted = kinds[name] if isinstance(kinds[name], tuple) else (kinds[name],)
            _wrong(name, " or ".join(kind.__name__ for kind in accepted), entry)
    return value


def _strings(value: list[Any], where: str) -> tuple[str, ...]:
    for entry in value:
        if not isinstance(entry, str):
            _wrong(where, "a list of strings", entry)
    return tuple(value)


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _wrong(where, "a whole number of at least 0", value)
    return int(value)


def _digests(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        _wrong(where, "a list of digests", value)
    for entry in value:
        if not isinstance(entry, str) or not re.fullmatch("[0-9a-f]{64}", entry):
            _wrong(where, "digests of 64 lower-case hex digits", entry)
    return tuple(value)


def _role(value: dict[str, Any], where: str) -> RoleRows:
    rows = _fields(value, where, {"indices": list, "fingerprints": list, "texts": list})
    indices = tuple(_count(entry, f"{where}.indices") for entry in rows["indices"])
    digests = (_digests(rows[name], f"{where}.{name}") for name in ("fingerprints", "texts"))
    return RoleRows(indices, *digests)


def _duplicates(value: dict[str, Any]) -> DuplicateFindings:
    found = _fields(value, "duplicates", _DUPLICATES)
    if found["policy"] not in DUPLICATE_POLICIES:
        _wrong("duplicates.policy", f"one of {', '.join(DUPLICATE_POLICIES)}", found["policy"])
    for name in ("found", "dropped", "contradictory"):
        _count(found[name], f"duplicates.{name}")
    for pair, number in found["near"].items():
        _count(number, f"duplicates.near.{pair}")
    return DuplicateFindings(**found)


def _ledger(value: dict[str, Any]) -> Ledger:
    for purpose in value:
        if purpose not in PURPOSES:
            raise DataError(f"Expected ledger to name only {', '.join(PURPOSES)}, but it also has {purpose!r}.")
    return Ledger.from_dict({purpose: _digests(rows, f"ledger.{purpose}") for purpose, rows in value.items()})
