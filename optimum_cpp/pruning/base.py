"""What a base pruner is given and returns, and Eq. 7, which mixes its importance with the saliency."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch

from ..saliency import Scale, importance
from .counts import lowest_mask
from .statistics import InputStatistics


@dataclass(frozen=True)
class PruneRequest:
    """One matrix to prune.

    Attributes:
        name: dotted name of the matrix.
        weight: (d_out, d_in) float32 copy of the current weights.
        statistics: of the matrix's inputs, or None for a pruner that needs none.
        moment: (d_out, d_in) moment of the saliency's gradients, or None where lambda is 0.
        scale: how the saliency is made of it.
        base_moment: (d_out, d_in) moment of the gradients that the base pruner ranks by, or None.
        lam: weight of the saliency, a decimal string.
        sparsity: share to prune, a decimal string.
        generator: seeded randomness, for pruners that need it.
    """

    name: str
    weight: torch.Tensor
    statistics: InputStatistics | None
    moment: torch.Tensor | None
    scale: Scale
    base_moment: torch.Tensor | None
    lam: str
    sparsity: str
    generator: torch.Generator


@dataclass(frozen=True)
class PruneOutcome:
    """What is pruned of one matrix.

    Attributes:
        pruned: (d_out, d_in) bool, True where the weight becomes zero.
        weight: (d_out, d_in) float32 new weights where the pruner changes the kept ones, else None.
        damping: share of the mean diagonal that was added to a Hessian, or None.
    """

    pruned: torch.Tensor
    weight: torch.Tensor | None = None
    damping: float | None = None


@dataclass(frozen=True)
class BasePruner:
    """A base pruner as the registry keeps it.

    Attributes:
        needs: input statistics that it uses: 'nothing', 'norms' or 'products'.
        prune: function of one request.
        gradients: which gradients it uses: the mean 'square' or 'absolute' value of the true label's
            score gradient, or 'regional' ones of a block's output.
    """

    needs: Literal["nothing", "norms", "products"]
    prune: Callable[[PruneRequest], PruneOutcome]
    gradients: Literal["none", "square", "absolute", "regional"] = "none"


def unit_scale(importance: torch.Tensor) -> float:
    """1 / l2 norm in float64; 0 for a term of zero norm, which then contributes nothing."""
    norm = float(torch.linalg.vector_norm(importance, dtype=torch.float64))
    return 1 / norm if norm > 0 else 0.0


def mix(base_importance: torch.Tensor, request: PruneRequest) -> torch.Tensor:
    """(1 - lambda) I_acc / ||I_acc|| + lambda I_cal / ||I_cal|| (CPP paper, Eq. 7), (d_out, d_in).

    lambda = 0 returns the base importance itself, so that the base pruner is reproduced to the bit.
    """
    if request.moment is None or Fraction(request.lam) == 0:
        return base_importance
    saliency = importance(request.weight, request.moment, request.scale)
    lam = float(Fraction(request.lam))
    return base_importance * ((1 - lam) * unit_scale(base_importance)) + saliency * (lam * unit_scale(saliency))


def prune_whole_matrix(base_importance: torch.Tensor, request: PruneRequest) -> PruneOutcome:
    """The lowest share of the matrix's entries, compared with one another."""
    mixed = mix(base_importance, request)
    return PruneOutcome(lowest_mask(mixed.reshape(1, -1), request.sparsity).reshape(mixed.shape))


def prune_output_rows(base_importance: torch.Tensor, request: PruneRequest) -> PruneOutcome:
    """The lowest share of each output row's entries."""
    return PruneOutcome(lowest_mask(mix(base_importance, request), request.sparsity))
