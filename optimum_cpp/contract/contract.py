"""The reliability contract: what was frozen, with which quantile, on which data (schema version 1)."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..conformal.quantile import parse_alpha
from ..errors import ContractViolation, DataError, UsageError
from ..filenames import CONTRACT_NAME
from ..registry import SCORES
from ..strict_json import parse_json
from .canonical import canonical_bytes, digest, from_hex
from .schema import build

SCHEMA = 1


@dataclass(frozen=True)
class LabelClaim:
    """One label: its name, its verbalizer and the verbalizer's token ids (both empty for encoders)."""

    name: str
    verbalizer: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class TaskClaim:
    """How a text becomes label scores."""

    kind: str
    name: str
    prompt: str
    max_text_tokens: int
    length_normalize: bool
    labels: tuple[LabelClaim, ...]


@dataclass(frozen=True)
class ScoreClaim:
    """The nonconformity score; numbers as float64 hexadecimal text, so that not a bit is lost."""

    name: str
    temperature: str
    prior: tuple[str, ...]
    allow_empty: bool


@dataclass(frozen=True)
class FileClaim:
    """SHA-256 and size in bytes of one file of the folder."""

    sha256: str
    size: int


@dataclass(frozen=True)
class MatrixClaim:
    """One pruned matrix: number of weights, zeros among them, digest of which, Hessian damping."""

    size: int
    zeros: int
    mask_digest: str
    damping: float | None


@dataclass(frozen=True)
class ModelClaim:
    """The frozen model: every file that loading reads, and the weights as they are in memory."""

    dtype: str
    files: dict[str, FileClaim]
    weights_digest: str
    matrices: dict[str, MatrixClaim]


@dataclass(frozen=True)
class ThresholdClaim:
    """The dense provisional quantile and the distance from it within which labels were near, hex floats."""

    quantile: str
    width: str


@dataclass(frozen=True)
class SaliencyClaim:
    """Which gradients the saliency was made of, and the number of labels of each row of the prune role."""

    targets: str
    score: str
    estimator: str
    num_sketches: int
    importance_scale: str
    labels_per_example: tuple[int, ...]
    threshold: ThresholdClaim | None


@dataclass(frozen=True)
class PruningClaim:
    """Where the model came from and how it was pruned; without a saliency, by the base pruner alone."""

    dense_model: str
    dense_revision: str | None
    dense_weights_digest: str
    base_pruner: str
    pattern: str
    sparsity: str
    saliency: SaliencyClaim | None
    lam: str
    seed: int


@dataclass(frozen=True)
class CandidateClaim:
    """One lambda on val_eval: exact counts, and why it was or was not chosen."""

    lam: str
    rows: int
    covered: int
    size_sum: int
    correct: int
    eligible: bool
    reason: str


@dataclass(frozen=True)
class SelectionClaim:
    """The rule and its inputs."""

    rule: str
    lam: str
    candidates: tuple[CandidateClaim, ...]


@dataclass(frozen=True)
class CalibrationClaim:
    """The quantile and the scores that it is the k-th smallest of, in the order of the conformal rows.

    `top_probabilities` and `set_sizes` of the same rows are the reference for drift.
    """

    alpha: str
    n: int
    k: int
    quantile: str
    scores: tuple[str, ...]
    top_probabilities: tuple[str, ...]
    set_sizes: tuple[int, ...]


@dataclass(frozen=True)
class EvaluationClaim:
    """Exact counts on the test role of one model at its own quantile, with the acceptance band."""

    model: str
    quantile: str
    rows: int
    covered: int
    size_sum: int
    correct: int
    empty: int
    ece: float
    band: tuple[int, int]


@dataclass(frozen=True)
class VerdictClaim:
    """The two lines of contract preservation (validity, efficiency) and their slack."""

    epsilon_size: str
    validity: str
    validity_reason: str
    efficiency: str
    efficiency_reason: str


@dataclass(frozen=True)
class Claims:
    """What the contract claims; the same inputs give the same bytes, and `digest` covers them all."""

    schema: int
    task: TaskClaim
    score: ScoreClaim
    model: ModelClaim
    pruning: PruningClaim | None
    selection: SelectionClaim | None
    calibration: CalibrationClaim
    manifest_digest: str
    evaluation: tuple[EvaluationClaim, ...]
    verdicts: VerdictClaim | None
    predecessor: str | None

    @property
    def quantile(self) -> float:
        """q-hat as a float64."""
        return from_hex(self.calibration.quantile)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in column order."""
        return tuple(label.name for label in self.task.labels)


@dataclass(frozen=True)
class ReliabilityContract:
    """Claims, their digest, and a record of what happened to be so (dates, versions, seconds)."""

    claims: Claims
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """`sha256:` and the SHA-256 of the claims' canonical bytes."""
        return digest(_plain(self.claims))

    def to_bytes(self) -> bytes:
        """The contract file: canonical JSON of claims, digest and record."""
        whole = {"claims": _plain(self.claims), "digest": self.digest, "record": self.record}
        return canonical_bytes(whole) + b"\n"

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write `reliability_contract.json` into a folder."""
        (Path(directory) / CONTRACT_NAME).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> ReliabilityContract:
        """Read the contract of a folder and check that its digest is that of its claims.

        Raises:
            ContractViolation: no contract, one that cannot be read, or claims that were edited.
        """
        path = Path(directory) / CONTRACT_NAME
        if not path.is_file():
            raise ContractViolation(
                f"Expected {str(directory)!r} to hold {CONTRACT_NAME}, but it does not; make one with "
                "'optimum-cli cpp prune' or 'optimum-cli cpp calibrate'."
            )
        return cls.from_bytes(path.read_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> ReliabilityContract:
        """The inverse of `to_bytes`, with the check of `load`."""
        try:
            whole = parse_json(data)
        except ValueError as error:
            raise ContractViolation(f"The contract cannot be read: {error}") from error
        if not isinstance(whole, dict) or set(whole) != {"claims", "digest", "record"}:
            raise ContractViolation("Expected the contract to hold claims, digest and record, but it does not.")
        schema = whole["claims"].get("schema") if isinstance(whole["claims"], dict) else None
        if schema != SCHEMA:
            raise ContractViolation(
                f"Expected a contract of schema {SCHEMA}, but got {schema!r}; update optimum-cpp to read a later one."
            )
        if not isinstance(whole["record"], dict):
            raise ContractViolation("Expected the contract's record to be an object, but it is not.")
        contract = cls(build(Claims, whole["claims"], "claims"), whole["record"])
        if contract.digest != whole["digest"]:
            raise ContractViolation(
                f"The contract's claims were edited: their digest is {contract.digest}, but the file says "
                f"{whole['digest']}."
            )
        _check_meaning(contract.claims)
        return contract


def _check_meaning(claims: Claims) -> None:
    """Refuse claims that no run can have made, before anything is built from them."""
    labels, prior, score = claims.labels, claims.score.prior, claims.score
    try:
        parse_alpha(claims.calibration.alpha)
        temperature = from_hex(score.temperature)
        _ = claims.quantile, [from_hex(value) for value in (*prior, *claims.calibration.scores)]
    except (DataError, UsageError) as error:
        raise ContractViolation(f"The contract holds a number that no calibration writes: {error}") from error
    failed = {
        "task.kind": claims.task.kind not in ("decoder", "encoder"),
        "task.labels": len(labels) < 2 or len(set(labels)) < len(labels),
        "task.prompt": claims.task.prompt.count("{text}") != 1,
        "task.max_text_tokens": claims.task.max_text_tokens < 1,
        "score.name": score.name not in SCORES,
        "score.temperature": not 0 < temperature < math.inf,
        "calibration.scores": len(claims.calibration.scores) != claims.calibration.n,
    }
    if not failed["score.name"]:
        failed["score.prior"] = len(prior) != (len(labels) if SCORES[score.name].uses_prior else 0)
    for name, wrong in failed.items():
        if wrong:
            raise ContractViolation(f"The contract's field {name} has a value that no calibration writes.")


def _plain(claims: Claims) -> Any:
    return asdict(claims)
