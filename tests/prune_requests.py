"""One matrix to prune, with whatever a test does not care about filled in."""

from __future__ import annotations

from typing import Any

import torch

from optimum_cpp.pruning import PruneRequest


def prune_request(weight: torch.Tensor, **given: Any) -> PruneRequest:
    """The base pruner alone at one half, unless fields say otherwise."""
    defaults: dict[str, Any] = {
        "name": "matrix",
        "statistics": None,
        "moment": None,
        "scale": "square",
        "base_moment": None,
        "lam": "0",
        "sparsity": "0.5",
        "generator": torch.Generator(),
    }
    return PruneRequest(weight=weight, **(defaults | given))
