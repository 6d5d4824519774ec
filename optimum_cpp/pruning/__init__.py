"""Base pruners, the walk over a model's blocks, and the exact counts of what goes."""

from .base import BasePruner, PruneOutcome, PruneRequest
from .sequential import DenseStart, PrunedMatrix, dense_start, prune_from, prune_model

__all__ = [
    "BasePruner",
    "DenseStart",
    "PruneOutcome",
    "PruneRequest",
    "PrunedMatrix",
    "dense_start",
    "prune_from",
    "prune_model",
]
