"""Base pruners that look at no data: magnitude, and random as the floor of any comparison."""

from __future__ import annotations

import torch

from ..registry import BASE_PRUNERS
from .base import BasePruner, PruneOutcome, PruneRequest, prune_whole_matrix


def prune_by_magnitude(request: PruneRequest) -> PruneOutcome:
    """|w|, compared over the whole matrix."""
    return prune_whole_matrix(request.weight.abs(), request)


def prune_at_random(request: PruneRequest) -> PruneOutcome:
    """Uniform importance from the request's generator, compared over the whole matrix."""
    importance = torch.rand(request.weight.shape, generator=request.generator)
    return prune_whole_matrix(importance.to(request.weight.device), request)


BASE_PRUNERS.register("magnitude")(BasePruner(needs="nothing", prune=prune_by_magnitude))
BASE_PRUNERS.register("random")(BasePruner(needs="nothing", prune=prune_at_random))
