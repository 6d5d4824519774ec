"""What moved since the contract was written? Checks of a folder that need no model in memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..conformal import conformal_quantile
from ..errors import ContractViolation, DataError
from ..filenames import CONFIG_NAME, CONTRACT_NAME, MANIFEST_NAME
from ..strict_json import parse_json
from .canonical import digest, file_digest, float_hex, from_hex
from .contract import FileClaim, ReliabilityContract

# What loading a classifier reads; a README or a report may change freely.
_LOADED = (".json", ".safetensors", ".jinja", ".txt", ".model")
_NOT_LOADED = (CONTRACT_NAME, MANIFEST_NAME, CONFIG_NAME)


@dataclass(frozen=True)
class Finding:
    """One check: the field, whether it holds, and what was expected and found where it does not."""

    field: str
    holds: bool
    expected: str = ""
    found: str = ""


def file_claims(directory: str | os.PathLike[str]) -> dict[str, FileClaim]:
    """Digest and size of every file in a folder that loading the classifier reads."""
    folder = Path(directory)
    names = sorted(p.name for p in folder.iterdir() if p.is_file() and p.suffix in _LOADED)
    return {
        name: FileClaim(file_digest(folder / name), (folder / name).stat().st_size)
        for name in names
        if name not in _NOT_LOADED
    }


def verify_folder(directory: str | os.PathLike[str], contract: ReliabilityContract) -> tuple[Finding, ...]:
    """Compare a folder with its contract: files, manifest, and the quantile from the stored scores."""
    return (
        *_verify_files(directory, contract),
        verify_manifest(directory, contract),
        *_verify_quantile(contract),
    )


def require(findings: tuple[Finding, ...]) -> None:
    """Raise a `ContractViolation` that names everything that moved."""
    moved = [finding for finding in findings if not finding.holds]
    if moved:
        listed = "; ".join(f"{f.field} (expected {f.expected}, found {f.found})" for f in moved[:3])
        more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
        raise ContractViolation(
            f"The reliability contract does not hold: {listed}{more}; restore what moved, or make a new contract "
            "with 'optimum-cli cpp calibrate'."
        )


def _verify_files(directory: str | os.PathLike[str], contract: ReliabilityContract) -> list[Finding]:
    expected, found = contract.claims.model.files, file_claims(directory)
    findings = []
    for name in sorted(set(expected) | set(found)):
        want = expected[name].sha256 if name in expected else "no such file"
        have = found[name].sha256 if name in found else "no such file"
        findings.append(Finding(f"model.files.{name}", want == have, want, have))
    return findings


def verify_manifest(directory: str | os.PathLike[str], contract: ReliabilityContract) -> Finding:
    """Whether the split manifest, which says what rows were used, is the one of the contract."""
    path, want = Path(directory) / MANIFEST_NAME, contract.claims.manifest_digest
    try:
        have = digest(parse_json(path.read_bytes()))
    except (OSError, DataError):
        have = "nothing readable"
    return Finding("manifest_digest", want == have, want, have)


def _verify_quantile(contract: ReliabilityContract) -> list[Finding]:
    claim = contract.claims.calibration
    scores = np.array([from_hex(score) for score in claim.scores])
    found = conformal_quantile(scores, claim.alpha)
    pairs = {
        "calibration.n": (str(claim.n), str(found.n)),
        "calibration.k": (str(claim.k), str(found.k)),
        "calibration.quantile": (claim.quantile, float_hex(found.value)),
    }
    return [Finding(name, want == have, want, have) for name, (want, have) in pairs.items()]
