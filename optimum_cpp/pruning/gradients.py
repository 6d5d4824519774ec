"""Base pruners that rank weights by gradients of the true label's score: the matched controls of the saliency."""

from __future__ import annotations

from ..registry import BASE_PRUNERS
from ..saliency import importance
from .base import BasePruner, PruneOutcome, PruneRequest, prune_output_rows


def prune_by_gradient(request: PruneRequest) -> PruneOutcome:
    """E[g^2], compared within each output row."""
    assert request.base_moment is not None
    return prune_output_rows(request.base_moment.float(), request)


def prune_by_snip(request: PruneRequest) -> PruneOutcome:
    """E[|theta g|] (SNIP, Lee et al. 2019), compared within each output row."""
    assert request.base_moment is not None
    return prune_output_rows(importance(request.weight, request.base_moment.float(), "absolute"), request)


BASE_PRUNERS.register("gradient")(BasePruner(needs="nothing", prune=prune_by_gradient, gradients="square"))
BASE_PRUNERS.register("snip")(BasePruner(needs="nothing", prune=prune_by_snip, gradients="absolute"))
