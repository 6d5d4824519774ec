"""Candidates: the model pruned at each lambda, measured on validation, its weights kept on disk."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from .blocks import Block, Matrix
from .configuration import CPPConfig
from .conformal import SetEvaluation, conformal_quantile
from .data import DataRoles
from .frozen import FrozenClassifier
from .pruning import DenseStart, PrunedMatrix, dense_start, prune_from
from .pruning.snapshot import restore_weights, save_weights
from .saliency import Saliency
from .scoring import LabelScorer, ScoreTransform, fit_transform
from .selection import Candidate

logger = logging.getLogger(__name__)

DENSE = "dense"
# The base pruner alone (lambda = 0), where it is a reference beside the chosen model.
BASE = "base"


@dataclass(frozen=True)
class MeasuredCandidate:
    """A candidate as validation sees it.

    Attributes:
        name: 'dense', or lambda as a decimal string; its weights are kept under this name.
        transform: the score fitted on val_cal.
        quantile: provisional quantile from val_cal.
        counts: on val_eval.
        val_cal_log_p: (M, K) float64 log p(y | x) on val_cal.
        pruned: what happened to each matrix (nothing for the dense model).
    """

    name: str
    transform: ScoreTransform
    quantile: float
    counts: SetEvaluation
    val_cal_log_p: npt.NDArray[np.float64]
    pruned: tuple[PrunedMatrix, ...] = ()

    @property
    def as_choice(self) -> Candidate:
        """The exact counts that the selection rule reads."""
        counts = self.counts
        return Candidate(self.name, counts.rows, counts.covered, counts.size_sum, counts.correct)


@dataclass(frozen=True)
class Bench:
    """The model on which candidates are made, one after the other.

    Attributes:
        scorer: the classifier; its weights change from candidate to candidate.
        blocks: transformer blocks.
        matrices: their prunable matrices.
        roles: data roles; only prune, val_cal and val_eval are read here.
        config: the recipe, with its score decided.
        work: folder of the weights of every candidate.
    """

    scorer: LabelScorer
    blocks: tuple[Block, ...]
    matrices: tuple[Matrix, ...]
    roles: DataRoles
    config: CPPConfig
    work: Path

    def keep(self, name: str) -> None:
        """Write the current weights to disk under a name."""
        save_weights(self.matrices, self.work / f"{name}.safetensors")

    def restore(self, name: str) -> None:
        """Put the weights kept under a name back into the model."""
        restore_weights(self.matrices, self.work / f"{name}.safetensors")

    def dense_start(self) -> DenseStart:
        """What pruning begins with at every lambda."""
        prune_role = self.roles.prune
        self.restore(DENSE)
        return dense_start(
            self.scorer,
            self.blocks,
            prune_role.texts,
            prune_role.labels,
            base_pruner=self.config.base_pruner,
            batch_tokens=self.scorer.batch_tokens,
        )

    def prune(
        self,
        lam: str,
        start: DenseStart,
        saliency: Saliency | None,
        base_gradients: Mapping[str, torch.Tensor] | None,
    ) -> tuple[PrunedMatrix, ...]:
        """Prune the dense model at one lambda and keep the result."""
        self.restore(DENSE)
        config = self.config
        pruned = prune_from(
            start,
            self.blocks,
            base_pruner=config.base_pruner,
            sparsity=config.sparsity,
            lam=lam,
            saliency=saliency,
            base_moments=base_gradients,
            seed=config.seed,
            description=f"prune with {config.base_pruner}, lambda {lam}",
        )
        self.keep(lam)
        return pruned

    def measure(self, name: str, pruned: tuple[PrunedMatrix, ...] = ()) -> MeasuredCandidate:
        """Fit the score on val_cal, take the provisional quantile there, evaluate once on val_eval."""
        cal, config = self.roles.val_cal, self.config
        labels = np.asarray(cal.labels)
        log_p = self.scorer.log_probabilities(cal.texts, description=f"{name}: val_cal")
        transform = fit_transform(str(config.score), config.temperature, log_p, labels)
        true_scores = transform.nonconformity(log_p)[np.arange(len(labels)), labels]
        quantile = conformal_quantile(true_scores, config.alpha).value
        provisional = FrozenClassifier(self.scorer, transform, config.allow_empty, digest="")
        counts = provisional.evaluate(self.roles.val_eval, quantile, f"{name}: val_eval").counts
        logger.info(
            "%s on val_eval: set size %.3f, coverage %.3f, accuracy %.3f",
            name if name == DENSE else f"lambda {name}",
            counts.mean_set_size,
            counts.coverage,
            counts.accuracy,
        )
        return MeasuredCandidate(name, transform, quantile, counts, log_p, pruned)
