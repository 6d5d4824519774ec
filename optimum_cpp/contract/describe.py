"""Claims about live objects, by one code path for writing a contract and for comparing with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..blocks import Matrix
from ..configuration import CPPConfig
from ..conformal import SetEvaluation
from ..data import ClassificationTask
from ..pruning import PrunedMatrix
from ..scoring import LabelScorer, ScoreTransform
from ..selection import Candidate, Selection
from .canonical import digest, float_hex, from_hex
from .claims import (
    CandidateClaim,
    EvaluationClaim,
    LabelClaim,
    ModelClaim,
    ScoreClaim,
    SelectionClaim,
    TaskClaim,
)
from .folder import file_claims
from .masks import mask_claim

if TYPE_CHECKING:
    import torch


def task_claim(scorer: LabelScorer) -> TaskClaim:
    """Prompt, labels and truncation of a scorer; token ids are encoded afresh, not remembered."""
    tokens = scorer.label_token_ids()
    words = scorer.task.verbalizers or ("",) * len(scorer.labels)
    return TaskClaim(
        kind=scorer.kind,
        name=scorer.task.name,
        prompt=scorer.task.prompt,
        max_text_tokens=scorer.max_text_tokens,
        length_normalize=scorer.length_normalize,
        labels=tuple(LabelClaim(n, w, t) for n, w, t in zip(scorer.labels, words, tokens, strict=True)),
    )


def task_of(claim: TaskClaim) -> ClassificationTask:
    """The task of a claim."""
    return ClassificationTask(
        name=claim.name,
        labels=tuple(label.name for label in claim.labels),
        verbalizers=tuple(label.verbalizer for label in claim.labels) if claim.kind == "decoder" else (),
        prompt=claim.prompt,
    )


def score_claim(transform: ScoreTransform, allow_empty: bool) -> ScoreClaim:
    """The score with its parameters."""
    prior = tuple(float_hex(value) for value in transform.prior or ())
    return ScoreClaim(transform.score, float_hex(transform.temperature), prior, allow_empty)


def transform_of(claim: ScoreClaim) -> ScoreTransform:
    """The inverse of `score_claim`."""
    prior = tuple(from_hex(value) for value in claim.prior) or None
    return ScoreTransform(claim.name, from_hex(claim.temperature), prior)


def model_claim(
    directory: str | os.PathLike[str],
    model: torch.nn.Module,
    matrices: Sequence[Matrix],
    pruned: Iterable[PrunedMatrix],
    weights_digest: str,
) -> ModelClaim:
    """The files of the folder, the weights in memory, and which weights of each matrix are zero."""
    damping = {matrix.name: matrix.damping for matrix in pruned}
    return ModelClaim(
        dtype=str(model.dtype).removeprefix("torch."),
        files=file_claims(directory),
        weights_digest=weights_digest,
        matrices={matrix.name: mask_claim(matrix.weight, damping.get(matrix.name)) for matrix in matrices},
    )


def selection_claim(candidates: Sequence[Candidate], selection: Selection, config: CPPConfig) -> SelectionClaim:
    """The rule's inputs and what it said of each."""
    tested = selection.rule == "learn_then_test"
    reasons = {decision.lam: decision for decision in selection.decisions}
    return SelectionClaim(
        rule=selection.rule,
        alpha=None if tested else config.alpha,
        ltt_risk=config.ltt_risk if tested else None,
        ltt_delta=config.ltt_delta if tested else None,
        lam=selection.lam,
        candidates=tuple(
            CandidateClaim(
                lam=item.lam,
                rows=item.rows,
                covered=item.covered,
                size_sum=item.size_sum,
                correct=item.correct,
                eligible=reasons[item.lam].eligible,
                reason=reasons[item.lam].reason,
            )
            for item in candidates
        ),
    )


def evaluation_claim(name: str, quantile: float, counts: SetEvaluation, band: tuple[int, int]) -> EvaluationClaim:
    """Exact counts of one model on the test role."""
    return EvaluationClaim(
        model=name,
        quantile=float_hex(quantile),
        rows=counts.rows,
        covered=counts.covered,
        size_sum=counts.size_sum,
        correct=counts.correct,
        empty=counts.empty,
        ece=counts.ece,
        band=band,
    )


def frozen_digest(task: TaskClaim, score: ScoreClaim, model: ModelClaim) -> str:
    """Digest of everything that the freeze fixes; the conformal role is opened by it."""
    from dataclasses import asdict

    return digest({"task": asdict(task), "score": asdict(score), "model": asdict(model)})


def environment(model: Any) -> dict[str, Any]:
    """Versions, device and attention implementation: recorded, not claimed."""
    import datetime
    import platform
    from importlib.metadata import version

    packages = (
        "torch",
        "transformers",
        "tokenizers",
        "safetensors",
        "numpy",
        "datasets",
        "optimum",
        "optimum-cpp",
    )
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "device": str(model.device),
        "processor": platform.processor() or platform.machine(),
        "attention": str(model.config._attn_implementation),
    }
