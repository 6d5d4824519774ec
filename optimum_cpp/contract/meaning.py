"""Claims that no run can have made, whatever their digests say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ..configuration import ESTIMATORS, SALIENCIES, SELECTIONS
from ..conformal.quantile import parse_alpha
from ..decimals import decimal_string
from ..errors import ContractViolation, DataError, UsageError
from ..registry import SCORES
from .canonical import from_hex
from .claims import CalibrationClaim, Claims, PruningClaim, SaliencyClaim, SelectionClaim

# A file name without a folder: no separator, and not the folder itself or its parent.
_FILE_NAME = re.compile(r"(?!\.{1,2}$)[^/\\\x00]{1,255}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DTYPES = ("bfloat16", "float16", "float32", "float64")
_TESTED = ("base", "chosen", "dense", "served")
_SCALES = ("absolute", "root", "square")


def check_meaning(claims: Claims) -> None:
    """Refuse claims before anything is built from them.

    Raises:
        ContractViolation: a value that no calibration writes; the field is named.
    """
    for name, right in (
        *_task_and_score(claims),
        *_model(claims),
        *(_pruning(claims.pruning, len(claims.labels)) if claims.pruning else ()),
        *(_selection(claims.selection) if claims.selection else ()),
        *_calibration(claims.calibration, len(claims.labels)),
        *_outcome(claims),
    ):
        if not right:
            raise ContractViolation(f"The contract's field {name} has a value that no calibration writes.")


Checks = Iterator[tuple[str, bool]]


def _task_and_score(claims: Claims) -> Checks:
    labels, task, score = claims.labels, claims.task, claims.score
    yield "task.kind", task.kind in ("decoder", "encoder")
    yield "task.labels", len(labels) > 1 and len(set(labels)) == len(labels)
    yield "task.prompt", task.prompt.count("{text}") == 1
    yield "task.max_text_tokens", task.max_text_tokens >= 1
    yield "score.name", score.name in SCORES
    yield "score.temperature", _is_hex(score.temperature) and 0 < from_hex(score.temperature) < math.inf
    length = len(labels) if score.name in SCORES and SCORES[score.name].uses_prior else 0
    yield "score.prior", len(score.prior) == length and all(map(_is_hex, score.prior))


def _model(claims: Claims) -> Checks:
    model = claims.model
    yield "model.dtype", model.dtype in _DTYPES
    yield (
        "model.files",
        all(
            _FILE_NAME.fullmatch(name) and _is_digest(file.sha256) and file.size >= 0
            for name, file in model.files.items()
        ),
    )
    yield "model.weights_digest", _is_digest(model.weights_digest)
    yield "model.matrices", all(_is_digest(matrix.mask_digest) for matrix in model.matrices.values())
    yield "manifest_digest", _is_digest(claims.manifest_digest)


def _pruning(claim: PruningClaim, labels: int) -> Checks:
    yield "pruning.dense_weights_digest", _is_digest(claim.dense_weights_digest)
    yield "pruning.pattern", claim.pattern == "unstructured"
    yield "pruning.sparsity", _is_decimal(claim.sparsity)
    yield "pruning.lam", _is_decimal(claim.lam)
    if claim.saliency:
        yield from _saliency(claim.saliency, labels)


def _saliency(claim: SaliencyClaim, labels: int) -> Checks:
    yield "pruning.saliency.targets", claim.targets in SALIENCIES
    yield "pruning.saliency.score", claim.score in SCORES
    yield "pruning.saliency.estimator", claim.estimator in ESTIMATORS
    yield "pruning.saliency.num_sketches", (claim.num_sketches > 0) == (claim.estimator == "rademacher")
    yield "pruning.saliency.importance_scale", claim.importance_scale in _SCALES
    yield "pruning.saliency.labels_per_example", all(1 <= count <= labels for count in claim.labels_per_example)
    if claim.threshold:
        yield "pruning.saliency.threshold.quantile", _is_hex(claim.threshold.quantile)
        yield "pruning.saliency.threshold.width", _is_hex(claim.threshold.width)


def _selection(claim: SelectionClaim) -> Checks:
    yield "selection.rule", claim.rule in SELECTIONS
    for name in ("alpha", "ltt_risk", "ltt_delta"):
        value = getattr(claim, name)
        yield f"selection.{name}", value is None or _is_decimal(value)
    yield "selection.lam", _is_decimal(claim.lam)
    yield "selection.candidates", all(_is_decimal(candidate.lam) for candidate in claim.candidates)


def _calibration(claim: CalibrationClaim, labels: int) -> Checks:
    yield "calibration.alpha", _is_level(claim.alpha)
    yield "calibration.quantile", _is_hex(claim.quantile)
    yield "calibration.scores", len(claim.scores) == claim.n and all(map(_is_hex, claim.scores))
    yield (
        "calibration.top_probabilities",
        len(claim.top_probabilities) == claim.n
        and all(_is_hex(value) and 0 <= from_hex(value) <= 1 for value in claim.top_probabilities),
    )
    yield (
        "calibration.set_sizes",
        len(claim.set_sizes) == claim.n and all(0 <= size <= labels for size in claim.set_sizes),
    )


def _outcome(claims: Claims) -> Checks:
    yield "evaluation", all(item.model in _TESTED and _is_hex(item.quantile) for item in claims.evaluation)
    if claims.verdicts:
        yield "verdicts.epsilon_size", _is_decimal(claims.verdicts.epsilon_size)
        yield "verdicts.size_difference", all(map(_is_hex, claims.verdicts.size_difference))
    yield "predecessor", claims.predecessor is None or _is_digest(claims.predecessor)


def _is_hex(text: str) -> bool:
    try:
        from_hex(text)
    except DataError:
        return False
    return True


def _is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _is_decimal(text: Any) -> bool:
    """Whether a text is a decimal number as `decimal_string` writes it."""
    try:
        return bool(decimal_string("a number", text) == text)
    except UsageError:
        return False


def _is_level(text: str) -> bool:
    try:
        parse_alpha(text)
    except UsageError:
        return False
    return _is_decimal(text)
