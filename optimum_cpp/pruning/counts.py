"""Exact numbers of weights to prune, and the masks that hold exactly that many."""

from __future__ import annotations

import math
from fractions import Fraction

import torch


def prune_count(size: int, sparsity: str) -> int:
    """floor(size * sparsity), computed exactly from the decimal string."""
    return math.floor(size * Fraction(sparsity))


def lowest_mask(importance: torch.Tensor, sparsity: str) -> torch.Tensor:
    """True for the lowest `prune_count` entries of each row; among equal ones the lower index goes first.

    Args:
        importance: (R, C) finite values; each row is one comparison group.
        sparsity: share to prune, a decimal string.

    Returns:
        (R, C) bool with exactly floor(C * sparsity) True in every row.
    """
    count = prune_count(importance.shape[1], sparsity)
    if count == 0:
        return torch.zeros_like(importance, dtype=torch.bool)
    threshold = importance.kthvalue(count, dim=1, keepdim=True).values
    mask = importance < threshold
    ties = importance == threshold
    places_left = count - mask.sum(1, keepdim=True)
    return mask | (ties & (ties.cumsum(1) <= places_left))
