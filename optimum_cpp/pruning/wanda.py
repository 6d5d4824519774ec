"""Wanda (Sun et al. 2023), |w_ij| * ||x_j||, and Wanda++, which adds regional gradients to the norm."""

from __future__ import annotations

from ..registry import BASE_PRUNERS
from .base import BasePruner, PruneOutcome, PruneRequest, prune_output_rows

# How much the regional gradient weighs beside the activation norm: the paper's value.
REGIONAL_WEIGHT = 100.0


def prune_by_wanda(request: PruneRequest) -> PruneOutcome:
    """|w_ij| * ||x_j||, the norm being the root mean square over real tokens."""
    assert request.statistics is not None
    return prune_output_rows(request.weight.abs() * request.statistics.norms.float(), request)


def prune_by_wanda_plus_plus(request: PruneRequest) -> PruneOutcome:
    """|w_ij| * (100 sqrt(E[g_ij^2]) + ||x_j||), g of the l2 norm of the block's output (Yang et al. 2025)."""
    assert request.statistics is not None and request.base_moment is not None
    norms = REGIONAL_WEIGHT * request.base_moment.sqrt().float() + request.statistics.norms.float()
    return prune_output_rows(request.weight.abs() * norms, request)


BASE_PRUNERS.register("wanda")(BasePruner(needs="norms", prune=prune_by_wanda))
BASE_PRUNERS.register("wanda++")(BasePruner(needs="norms", prune=prune_by_wanda_plus_plus, gradients="regional"))
