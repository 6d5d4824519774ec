"""Everything that a third party can check of a folder: fields, rows, roles, scores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from .configuration import CPPConfig
from .contract import (
    Claims,
    Finding,
    ReliabilityContract,
    bytes_to_hash,
    compare,
    verify_folder,
    verify_weights,
)
from .contract.canonical import from_hex
from .contract.describe import task_of, transform_of
from .contract.signing import verify_signature
from .data import DataRoles, SplitManifest, load_pool, parse_splits, roles_from_manifest
from .errors import CPPError, UsageError
from .filenames import MANIFEST_NAME
from .frozen import FrozenClassifier
from .loading import load_model, load_tokenizer, weights_digest
from .modeling import local_folder, scorer_of_claims
from .scoring.encoding import PromptEncoder
from .verified_rows import verify_roles, verify_rows

# Rounding of a score between two runs: the least that is allowed, by dtype, and the most that a recorded
# noise may widen it to, since whoever writes the record could write anything.
_LEAST_TOLERANCE = {"float64": 1e-6, "float32": 1e-3}
_COARSE = 0.05
_WIDEST = 10


@dataclass(frozen=True)
class Verification:
    """What was checked.

    Attributes:
        digest: of the contract.
        findings: at least one for each field of the contract.
    """

    digest: str
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing moved."""
        return all(finding.holds for finding in self.findings)


def verify(
    model_name_or_path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | None = None,
    dataset: Any = None,
    dataset_revision: str | None = None,
    rescore: int = 0,
    expected_digest: str | None = None,
    signature: str | os.PathLike[str] | None = None,
    public_key: str | os.PathLike[str] | None = None,
    identity: str | None = None,
    identity_provider: str | None = None,
    progress: bool = False,
) -> Verification:
    """Check a folder or Hub repository against its contract.

    Without further arguments nothing but the folder is read and no model is loaded: digests, files,
    masks, manifest, token ids, and every number that other numbers imply.

    Args:
        model_name_or_path: a folder or Hub repository with a contract.
        revision: commit or tag on the Hub.
        token: access token for the Hub.
        dataset: the labelled rows that the manifest speaks of; then rows, roles and duplicates are checked.
        dataset_revision: commit or tag of the data set; by default the manifest's.
        rescore: how many calibration scores to compute again with the model itself; needs `dataset`.
        expected_digest: the contract's digest as its author published it elsewhere.
        signature: file of a detached signature, by default the folder's own, checked against one of:
        public_key: PEM file of the signer's public key.
        identity: the signer's identity for a Sigstore signature, which needs a network.
        identity_provider: who vouches for that identity.
        progress: show a bar while files are hashed.

    Raises:
        ContractViolation: no contract, or one whose claims were edited; the field is named.
        UsageError: `rescore` without `dataset`.
    """
    if rescore < 0 or (rescore and dataset is None):
        raise UsageError("Expected argument `rescore` to be a number of rows of `dataset`, which must be given.")
    folder = local_folder(model_name_or_path, revision=revision, token=token)
    contract = ReliabilityContract.load(folder)
    claims = contract.claims
    findings = [
        Finding("digest", True) if expected_digest is None else compare("digest", expected_digest, contract.digest),
        # Loading has compared every field with its digest.
        *(Finding(path, True) for path in contract.field_digests),
        *_verify_folder(folder, claims, progress),
    ]
    if any(given is not None for given in (signature, public_key, identity, identity_provider)):
        signer = {"public_key": public_key, "identity": identity, "identity_provider": identity_provider}
        findings.insert(1, verify_signature(folder, signature, **signer))  # type: ignore[arg-type]
    if all(finding.holds for finding in findings if finding.field == "manifest_digest"):
        findings += verify_roles(SplitManifest.load(folder / MANIFEST_NAME), claims)
    if dataset is not None:
        manifest = SplitManifest.load(folder / MANIFEST_NAME)
        source = manifest.dataset
        pool = load_pool(
            dataset,
            revision=dataset_revision or source.revision,
            split=source.splits,
            text_column=source.text_column,
            label_column=source.label_column,
            label_names=claims.labels,
        )
        _, role_splits = parse_splits(CPPConfig.from_pretrained(folder).split)
        findings += verify_rows(pool, manifest, role_splits or None)
        if rescore and all(finding.holds for finding in findings):
            findings += _rescore(folder, contract, roles_from_manifest(pool, manifest), rescore)
    return Verification(contract.digest, tuple(findings))


def _verify_folder(folder: Path, claims: Claims, progress: bool) -> Iterator[Finding]:
    with tqdm(
        total=bytes_to_hash(folder), desc="hash files", unit="B", unit_scale=True, leave=False, disable=not progress
    ) as bar:
        yield from verify_folder(folder, claims, progress=bar.update)
    yield from verify_weights(folder, claims)
    if claims.task.kind == "decoder":
        yield _verify_tokens(folder, claims)


def _verify_tokens(folder: Path, claims: Claims) -> Finding:
    """The token ids of the verbalizers, encoded afresh by the folder's tokenizer."""
    expected = [label.token_ids for label in claims.task.labels]
    try:
        encoder = PromptEncoder(load_tokenizer(folder), task_of(claims.task), claims.task.max_text_tokens)
    except CPPError as error:
        return Finding("task.labels", False, "verbalizers that the tokenizer can encode", str(error))
    return compare("task.labels", expected, list(encoder.label_tokens))


def _rescore(folder: Path, contract: ReliabilityContract, roles: DataRoles, rows: int) -> Iterator[Finding]:
    """Some calibration scores by the model itself, spread evenly over the conformal role."""
    claims = contract.claims
    loaded = load_model(folder)
    yield compare("model.weights_digest", claims.model.weights_digest, weights_digest(loaded.model))
    scorer = scorer_of_claims(loaded, claims, None)
    frozen = FrozenClassifier(scorer, transform_of(claims.score), claims.score.allow_empty, contract.digest)
    conformal = frozen.open_conformal(roles)
    chosen = np.unique(np.linspace(0, len(conformal) - 1, min(rows, len(conformal)), dtype=np.int64))
    scores = frozen.score([conformal.texts[row] for row in chosen], "rescore").nonconformity
    found = scores[np.arange(len(chosen)), [conformal.labels[row] for row in chosen]]
    expected = np.array([from_hex(claims.calibration.scores[row]) for row in chosen])
    largest, allowed = float(np.abs(found - expected).max()), _tolerance(contract)
    yield Finding(
        "calibration.scores",
        largest <= allowed,
        f"{len(chosen)} scores within {allowed:.2g} of those in the contract",
        f"a difference of {largest:.3g}",
    )


def _tolerance(contract: ReliabilityContract) -> float:
    """Twice the recorded difference between batched and single scoring, within bounds that the dtype sets."""
    least = _LEAST_TOLERANCE.get(contract.claims.model.dtype, _COARSE)
    noise = contract.record.get("batch_versus_single")
    recorded = float(noise) if isinstance(noise, (int, float)) else 0.0
    return min(max(least, 2 * recorded), _WIDEST * least)
