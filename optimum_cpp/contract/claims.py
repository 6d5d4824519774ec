"""What a reliability contract claims (schema version 1); `FORMAT.md` says what each field means."""

from __future__ import annotations

from dataclasses import dataclass

from .canonical import from_hex


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
    """The rule and its inputs: alpha under guardrail, the risk and its level under learn_then_test."""

    rule: str
    alpha: str | None
    ltt_risk: str | None
    ltt_delta: str | None
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
    """The two lines of contract preservation (validity, efficiency) and their slack.

    `size_difference`: mean, low and high end of (chosen - dense) set size on test, hex floats.
    """

    epsilon_size: str
    size_difference: tuple[str, str, str]
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
