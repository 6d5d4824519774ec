"""Wanda (Sun et al. 2023): |w_ij| * ||x_j||, compared within each output row."""

from __future__ import annotations

from ..registry import BASE_PRUNERS
from .base import BasePruner, PruneOutcome, PruneRequest, prune_output_rows


def prune_by_wanda(request: PruneRequest) -> PruneOutcome:
    """|w_ij| * ||x_j||, the norm being the root mean square over real tokens."""
    assert request.statistics is not None
    return prune_output_rows(request.weight.abs() * request.statistics.norms.float(), request)


BASE_PRUNERS.register("wanda")(BasePruner(needs="norms", prune=prune_by_wanda))
