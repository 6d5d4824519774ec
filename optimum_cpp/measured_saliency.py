"""From the recipe to the saliency of a run: which labels, their band, and the gradients of their scores."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch

from .blocks import Block, matrices_of
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
    StoredMoments,
    Targets,
    ThresholdBand,
    all_labels,
    check_threshold,
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


def check_saliency(config: CPPConfig, labels: int, val_cal_rows: int, blocks: Sequence[Block]) -> None:
    """Refuse, before anything is computed, what cannot work.

    Args:
        config: the recipe.
        labels: size of the label space.
        val_cal_rows: from which a threshold is taken.
        blocks: whose gradient sums the recipe's memory must hold one at a time.
    """
    if not any(Fraction(lam) for lam in config.lambda_grid):
        return
    if config.saliency == "threshold":
        check_threshold(val_cal_rows, config.alpha)
    if config.saliency == "top_k" and config.top_k > labels:
        raise UsageError(
            f"Expected argument `top_k` to be at most the number of labels, {labels}, but got {config.top_k}."
        )
    if config.saliency_memory is not None:
        _groups(blocks, config.saliency_memory)


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
    estimator = Estimator(config.num_sketches, config.seed) if sketched else EXACT
    moments = _moments(bench, targets, transform, estimator, moment, f"saliency ({config.saliency})")
    counts = tuple(len(labels) for labels in targets)
    if config.saliency in ("threshold", "all", "top_k"):
        logger.info("saliency of %.2f labels an example", sum(counts) / len(counts))
    scale: Scale = "absolute" if moment == "absolute" else "root" if config.importance_scale == "root" else "square"
    return Saliency(moments, scale), SaliencyFacts(scale, counts, band)


def ranks_by_gradients(config: CPPConfig) -> bool:
    """Whether the recipe's base pruner needs the gradients of `base_gradients`."""
    return BASE_PRUNERS[config.base_pruner].gradients in ("square", "absolute")


def base_gradients(bench: Bench) -> Mapping[str, torch.Tensor] | None:
    """Gradients of the true label's log-likelihood, for a base pruner that ranks by them; None for others."""
    wanted = BASE_PRUNERS[bench.config.base_pruner].gradients
    if wanted not in ("square", "absolute"):
        return None
    targets = true_labels(bench.roles.prune.labels)
    return _moments(bench, targets, ScoreTransform("nll"), EXACT, wanted, f"gradients of {bench.config.base_pruner}")


def _moments(
    bench: Bench, targets: Targets, score: ScoreTransform, estimator: Estimator, moment: Moment, description: str
) -> Mapping[str, torch.Tensor]:
    """Moments on the prune role, of all blocks at once or group by group within the recipe's memory."""

    def of(blocks: Sequence[Block], name: str) -> dict[str, torch.Tensor]:
        return gradient_moments(
            bench.scorer,
            matrices_of(blocks),
            bench.roles.prune.texts,
            targets,
            score=score,
            estimator=estimator,
            moment=moment,
            batch_tokens=bench.scorer.batch_tokens,
            description=name,
        )

    if bench.config.saliency_memory is None:
        return of(bench.blocks, description)
    groups = _groups(bench.blocks, bench.config.saliency_memory)
    stored = StoredMoments()
    for number, group in enumerate(groups, start=1):
        moments = of(group, f"{description}, group {number} of {len(groups)}")
        stored.add(moments, bench.work / f"{moment}-{description.split()[0]}-{number}.safetensors")
    return stored


def _groups(blocks: Sequence[Block], memory: int) -> list[list[Block]]:
    """Consecutive blocks whose gradient sums (4 bytes a weight, 8 in float64) fit in `memory` MiB."""
    groups: list[list[Block]] = []
    free = 0
    for block in blocks:
        size = sum(m.weight.numel() * max(4, m.weight.element_size()) for m in block.matrices)
        if size > memory * 2**20:
            raise UsageError(
                f"Expected argument `saliency_memory` to hold the gradient sums of one block, at least "
                f"{math.ceil(size / 2**20)} MiB, but got {memory}."
            )
        if not groups or size > free:
            groups.append([])
            free = memory * 2**20
        groups[-1].append(block)
        free -= size
    return groups


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
