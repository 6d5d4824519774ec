"""The reliability contract: what was frozen, with which quantile, on which data (schema version 1)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ContractViolation, DataError
from ..filenames import CONTRACT_NAME
from ..strict_json import parse_json, read_limited
from .canonical import canonical_bytes, digest
from .claims import Claims
from .findings import Finding, compare
from .folder import verify_folder, verify_weights
from .meaning import check_meaning
from .schema import build

SCHEMA = 1
# The scores of a million calibration rows; a longer file is refused before it is read.
MAX_BYTES = 64 * 2**20
_MEMBERS = ("claims", "digest", "field_digests", "record")


@dataclass(frozen=True)
class ReliabilityContract:
    """Claims, their digest, and a record of what happened to be so (dates, versions, seconds)."""

    claims: Claims
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """`sha256:` and the SHA-256 of the claims' canonical bytes."""
        return digest(asdict(self.claims))

    @property
    def field_digests(self) -> dict[str, str]:
        """Digest of each single field, by its path; they tell which one was edited where `digest` fails."""
        return {path: digest(value) for path, value in _fields(self.claims)}

    def diff(self, other: ReliabilityContract) -> tuple[Finding, ...]:
        """The fields of the claims in which `other` differs; of files and matrices, those that differ."""
        mine, theirs = dict(_fields(self.claims)), dict(_fields(other.claims))
        findings = []
        for path in sorted(set(mine) | set(theirs)):
            one, two = mine.get(path), theirs.get(path)
            if isinstance(one, dict) and isinstance(two, dict):
                names = sorted(name for name in set(one) | set(two) if one.get(name) != two.get(name))
                findings += [compare(f"{path}.{name}", one.get(name), two.get(name)) for name in names]
            elif one != two:
                findings.append(compare(path, one, two))
        return tuple(findings)

    def verify(self, directory: str | os.PathLike[str]) -> tuple[Finding, ...]:
        """Compare a folder with this contract: files, masks, manifest, and what the claims imply of each other.

        `optimum_cpp.verification.verify` checks more: token ids, rows, scores and signatures.
        """
        return (*verify_folder(directory, self.claims), *verify_weights(directory, self.claims))

    def to_bytes(self) -> bytes:
        """The contract file: canonical JSON of claims, digests and record."""
        members = (asdict(self.claims), self.digest, self.field_digests, self.record)
        return canonical_bytes(dict(zip(_MEMBERS, members, strict=True))) + b"\n"

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write `reliability_contract.json` into a folder."""
        (Path(directory) / CONTRACT_NAME).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> ReliabilityContract:
        """Read the contract of a folder and check that its digests are those of its claims.

        Raises:
            ContractViolation: no contract, one that cannot be read, or claims that were edited.
        """
        path = Path(directory) / CONTRACT_NAME
        if not path.is_file():
            raise ContractViolation(
                f"Expected {str(directory)!r} to hold {CONTRACT_NAME}, but it does not; make one with "
                "'optimum-cli cpp prune' or 'optimum-cli cpp calibrate'."
            )
        try:
            return cls.from_bytes(read_limited(path, MAX_BYTES))
        except DataError as error:
            raise ContractViolation(f"The contract cannot be read: {error}") from error

    @classmethod
    def from_bytes(cls, data: bytes) -> ReliabilityContract:
        """The inverse of `to_bytes`, with the checks of `load`."""
        try:
            whole = parse_json(data)
        except DataError as error:
            raise ContractViolation(f"The contract cannot be read: {error}") from error
        if not isinstance(whole, dict) or not isinstance(whole.get("claims"), dict):
            raise ContractViolation(f"Expected the contract to hold {', '.join(_MEMBERS)}, but it does not.")
        schema = whole["claims"].get("schema")
        if type(schema) is not int or schema != SCHEMA:
            raise ContractViolation(
                f"Expected a contract of schema {SCHEMA}, but got {schema!r:.40}; update optimum-cpp for later ones."
            )
        if set(whole) != set(_MEMBERS) or not isinstance(whole["record"], dict):
            raise ContractViolation(f"Expected the contract to hold {', '.join(_MEMBERS)}, but it does not.")
        contract = cls(build(Claims, whole["claims"], "claims"), whole["record"])
        _check_digests(contract, whole["digest"], whole["field_digests"])
        check_meaning(contract.claims)
        return contract


def _fields(claims: Claims) -> Iterator[tuple[str, Any]]:
    """Path and plain value of every field; lists, files and matrices stay whole."""
    return _walk(claims, asdict(claims), "")


def _walk(value: Any, plain: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for item in dataclasses.fields(value):
        entry, inner = getattr(value, item.name), f"{path}{item.name}"
        if dataclasses.is_dataclass(entry):
            yield from _walk(entry, plain[item.name], f"{inner}.")
        else:
            yield inner, plain[item.name]


def _check_digests(contract: ReliabilityContract, whole: Any, fields: Any) -> None:
    """Refuse edited claims, by the names of the fields where they can be told."""
    found = contract.field_digests
    written = fields if isinstance(fields, dict) else {}
    edited = sorted(path for path in set(found) | set(written) if found.get(path) != written.get(path))
    if edited:
        raise ContractViolation(
            f"The contract's claims were edited: {', '.join(edited[:5])} no longer "
            f"{'has its digest' if len(edited) == 1 else 'have their digests'}."
        )
    if contract.digest != whole:
        raise ContractViolation(
            f"The contract's claims were edited: their digest is {contract.digest}, but the file says {whole!r:.100}."
        )
