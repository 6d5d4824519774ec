"""From the recipe to the saliency of a run: which labels, their band, and the gradients of their scores."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from .candidates import Bench, MeasuredCandidate
from .configuration import CPPConfig
from .errors import UsageError
from .registry import BASE_PRUNERS
from .saliency import (
    EXACT,
    Estimator,
    Moment,
    Saliency,
    Scale,
    Targets,
    ThresholdBand,
    all_labels,
    gradient_moments,
    near_threshold,
    threshold_band,
    top_labels,
    true_labels,
)
from .scoring import ScoreTransform, fit_transform

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SaliencyFacts:
    """What the contract says about a saliency.

    Attributes:
        scale: how importance is made of the gradients.
        labels_per_example: how many labels each row of the prune role had.
        band: of the targets `threshold`, else None.
    """

    scale: Scale
    labels_per_example: tuple[int, ...]
    band: ThresholdBand | None


def check_targets(config: CPPConfig, labels: int) -> None:
    """Refuse a recipe that asks for more labels than there are, before anything is computed."""
    if config.saliency == "top_k" and config.top_k > labels:
        raise UsageError(
            f"Expected argument `top_k` to be at most the number of labels, {labels}, but got {config.top_k}."
        )


def measure_saliency(bench: Bench, dense: MeasuredCandidate) -> tuple[Saliency, SaliencyFacts]:
    """Gradients on the prune role of the dense model (Algorithm 1, step 2).

    Args:
        bench: the dense model on its bench; prune and, for candidate labels, val_cal are read.
        dense: its scores on validation; their transform, prior and temperature are constants here.
    """
    config = bench.config
    targets, band = _targets(bench, dense)
    transform = fit_transform(
        config.saliency_score, config.temperature, dense.val_cal_log_p, np.asarray(bench.roles.val_cal.labels)
    )
    sketched = config.estimator == "rademacher"
    moment: Moment = "absolute" if config.saliency == "snip" else "square"
    moments = gradient_moments(
        bench.scorer,
        bench.matrices,
        bench.roles.prune.texts,
        targets,
        score=transform,
        estimator=Estimator(config.num_sketches, config.seed) if sketched else EXACT,
        moment=moment,
        batch_tokens=bench.scorer.batch_tokens,
        description=f"saliency ({config.saliency})",
    )
    counts = tuple(len(labels) for labels in targets)
    if config.saliency in ("threshold", "all", "top_k"):
        logger.info("saliency of %.2f labels an example", sum(counts) / len(counts))
    scale: Scale = "absolute" if moment == "absolute" else "root" if config.importance_scale == "root" else "square"
    return Saliency(moments, scale), SaliencyFacts(scale, counts, band)


def base_gradients(bench: Bench) -> Mapping[str, torch.Tensor] | None:
    """Gradients of the true label's log-likelihood, for a base pruner that ranks by them; None for others."""
    wanted = BASE_PRUNERS[bench.config.base_pruner].gradients
    if wanted not in ("square", "absolute"):
        return None
    prune = bench.roles.prune
    return gradient_moments(
        bench.scorer,
        bench.matrices,
        prune.texts,
        true_labels(prune.labels),
        score=ScoreTransform("nll"),
        moment=wanted,
        batch_tokens=bench.scorer.batch_tokens,
        description=f"gradients of {bench.config.base_pruner}",
    )


def _targets(bench: Bench, dense: MeasuredCandidate) -> tuple[Targets, ThresholdBand | None]:
    config, prune = bench.config, bench.roles.prune
    if config.saliency in ("true", "snip"):
        return true_labels(prune.labels), None
    if config.saliency == "all":
        return all_labels(len(prune), len(bench.scorer.labels)), None
    band = None
    if config.saliency == "threshold":
        band = threshold_band(
            dense.transform.nonconformity(dense.val_cal_log_p), bench.roles.val_cal.labels, config.alpha
        )
    log_p = bench.scorer.log_probabilities(prune.texts, description="dense: prune")
    scores = dense.transform.nonconformity(log_p)
    return (near_threshold(scores, band) if band else top_labels(scores, config.top_k)), band
