"""Base pruners, the walk over a model's blocks, and the exact counts of what goes."""

from .base import BasePruner, PruneOutcome, PruneRequest
from .blocks import Block, Matrix, describe_blocks, find_blocks, matrices_of, named_matrices
from .sequential import PrunedMatrix, prune_model

__all__ = [
    "BasePruner",
    "Block",
    "Matrix",
    "PruneOutcome",
    "PruneRequest",
    "PrunedMatrix",
    "describe_blocks",
    "find_blocks",
    "matrices_of",
    "named_matrices",
    "prune_model",
]
