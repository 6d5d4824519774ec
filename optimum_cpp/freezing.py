"""The freeze: the chosen weights, tokenizer, prompt and score go to disk, and what is on disk is served."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .blocks import Matrix, find_blocks, matrices_of
from .configuration import CPPConfig
from .contract.claims import ModelClaim, ScoreClaim, TaskClaim
from .contract.describe import frozen_digest, model_claim, score_claim, task_claim
from .data import ClassificationTask
from .errors import ModelError
from .frozen import FrozenClassifier
from .loading import LoadedModel, load_model, make_scorer, weights_digest
from .pruning import PrunedMatrix
from .scoring import LabelScorer, ScoreTransform

logger = logging.getLogger(__name__)

# Rows whose scores are compared between a batch and alone, to record how far the dtype moves them.
NOISE_ROWS = 32


@dataclass(frozen=True)
class Freeze:
    """A frozen classifier and the claims about it."""

    classifier: FrozenClassifier
    task: TaskClaim
    score: ScoreClaim
    model: ModelClaim


def scorer_of(loaded: LoadedModel, task: ClassificationTask, config: CPPConfig) -> LabelScorer:
    """The scorer that a recipe asks for."""
    return make_scorer(
        loaded,
        task,
        max_text_tokens=config.max_text_tokens,
        length_normalize=config.length_normalize,
        batch_tokens=config.batch_tokens,
    )


def freeze(
    loaded: LoadedModel,
    task: ClassificationTask,
    transform: ScoreTransform,
    config: CPPConfig,
    pruned: Sequence[PrunedMatrix],
    folder: Path,
) -> Freeze:
    """Save model and tokenizer, load them back, and fix everything by a digest.

    The classifier that is calibrated is the one loaded from the folder, so that deployment, which
    loads the same folder, runs the same code on the same bytes.

    Raises:
        ModelError: a checkpoint that does not come back as it was saved.
    """
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    served = load_model(folder, device_map=config.device_map)
    found = weights_digest(served.model)
    if found != weights_digest(loaded.model):
        raise ModelError(
            f"Expected {type(loaded.model).__name__} to load as it was saved, but its weights differ after a round "
            "trip; check that the architecture saves and ties its weights as transformers expects."
        )
    scorer = scorer_of(served, task, config)
    matrices = prunable_matrices(served, config)
    claims = (
        task_claim(scorer),
        score_claim(transform, config.allow_empty),
        model_claim(folder, served.model, matrices, pruned, found),
    )
    return Freeze(FrozenClassifier(scorer, transform, config.allow_empty, frozen_digest(*claims)), *claims)


def prunable_matrices(loaded: LoadedModel, config: CPPConfig) -> list[Matrix]:
    """The matrices that the recipe prunes."""
    return matrices_of(find_blocks(loaded.model, target_modules=config.target_modules, ignore=config.ignore))


def score_noise(scorer: LabelScorer, texts: Sequence[str]) -> float:
    """Largest difference of log p(y | x) between rows scored in batches and alone, over some rows."""
    rows = list(texts[:NOISE_ROWS])
    together = scorer.log_probabilities(rows)
    alone = np.concatenate([scorer.log_probabilities([row]) for row in rows])
    return float(np.abs(together - alone).max())
