"""The files of a folder against what a contract says of them; no model in memory, constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..errors import DataError
from ..filenames import CONFIG_NAME, CONTRACT_NAME, MANIFEST_NAME, REQUIREMENTS_NAME
from ..strict_json import parse_json, read_limited
from .arithmetic import recompute
from .canonical import digest, file_digest
from .claims import Claims, FileClaim
from .findings import Finding, compare
from .masks import verify_masks

# What loading a classifier reads; a README or a report may change freely.
_LOADED = (".json", ".safetensors", ".jinja", ".txt", ".model")
_NOT_LOADED = (CONTRACT_NAME, MANIFEST_NAME, CONFIG_NAME, REQUIREMENTS_NAME)
_ABSENT = "no such file"
# The fingerprints of several million rows.
MAX_MANIFEST_BYTES = 512 * 2**20

Progress = Callable[[int], object]


def loaded_files(directory: str | os.PathLike[str]) -> dict[str, Path]:
    """Name -> path of every file in a folder that loading the classifier reads."""
    folder = Path(directory)
    names = sorted(p.name for p in folder.iterdir() if p.is_file() and p.suffix in _LOADED)
    return {name: folder / name for name in names if name not in _NOT_LOADED}


def file_claims(directory: str | os.PathLike[str]) -> dict[str, FileClaim]:
    """Digest and size of every file in a folder that loading the classifier reads."""
    return {name: FileClaim(file_digest(path), path.stat().st_size) for name, path in loaded_files(directory).items()}


def verify_folder(
    directory: str | os.PathLike[str], claims: Claims, *, progress: Progress | None = None
) -> tuple[Finding, ...]:
    """Compare a folder with its contract: files, manifest, and what the claims imply about each other.

    Args:
        directory: the folder.
        claims: those of its contract.
        progress: called with the number of bytes of each piece that was hashed.
    """
    return (*verify_files(directory, claims, progress), verify_manifest(directory, claims), *recompute(claims))


def verify_weights(directory: str | os.PathLike[str], claims: Claims) -> tuple[Finding, ...]:
    """Which weights of the stored matrices are zero, against the claimed masks."""
    return tuple(verify_masks(loaded_files(directory).values(), claims.model.matrices))


def verify_files(directory: str | os.PathLike[str], claims: Claims, progress: Progress | None = None) -> list[Finding]:
    """Whether the folder holds the claimed files, bit for bit, and no others that loading would read."""
    expected, present = claims.model.files, loaded_files(directory)
    findings = []
    for name in sorted(set(expected) | set(present)):
        field = f"model.files.{name}"
        if name not in present or name not in expected:
            sides = (_ABSENT if name not in expected else "the file", _ABSENT if name not in present else "a file")
            findings.append(Finding(field, False, *sides))
        elif leaves_folder(present[name]):
            findings.append(
                Finding(field, False, "a file of this folder", f"a link to {os.path.realpath(present[name])}")
            )
        else:
            findings.append(_verify_file(field, present[name], expected[name], progress))
    return findings


def _verify_file(field: str, path: Path, claim: FileClaim, progress: Progress | None) -> Finding:
    size = path.stat().st_size
    if size != claim.size:
        return Finding(field, False, f"{claim.size} bytes", f"{size} bytes")
    try:
        return compare(field, claim.sha256, file_digest(path, progress))
    except DataError as error:
        return Finding(field, False, claim.sha256, str(error))


def leaves_folder(path: Path) -> bool:
    """Whether a file is a link to a place outside its folder; a Hub snapshot links to its cache's blobs."""
    real, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    blobs = folder.parent.parent / "blobs" if folder.parent.name == "snapshots" else folder
    return not (real.is_relative_to(folder) or real.is_relative_to(blobs))


def verify_manifest(directory: str | os.PathLike[str], claims: Claims) -> Finding:
    """Whether the split manifest, which says what rows were used, is the one of the contract."""
    path = Path(directory) / MANIFEST_NAME
    try:
        found = digest(parse_json(read_limited(path, MAX_MANIFEST_BYTES)))
    except DataError as error:
        found = f"nothing readable ({error})" if path.exists() else _ABSENT
    return compare("manifest_digest", claims.manifest_digest, found)


def bytes_to_hash(directory: str | os.PathLike[str]) -> int:
    """How many bytes `verify_files` reads, for a progress bar."""
    return sum(path.stat().st_size for path in loaded_files(directory).values())
