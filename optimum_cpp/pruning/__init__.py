"""Base pruners, the walk over a model's blocks, and the exact counts of what goes."""

from .base import BasePruner, PruneOutcome, PruneRequest
from .sequential import PrunedMatrix, prune_model

__all__ = [
    "BasePruner",
    "PruneOutcome",
    "PruneRequest",
    "PrunedMatrix",
    "prune_model",
]
