"""SparseGPT (Frantar & Alistarh 2023): prune with second-order compensation, block of columns by block."""

from __future__ import annotations

import logging
from fractions import Fraction

import torch

from ..errors import ModelError
from ..registry import BASE_PRUNERS
from ..saliency import importance
from .base import BasePruner, PruneOutcome, PruneRequest, unit_scale
from .counts import lowest_mask

logger = logging.getLogger(__name__)

BLOCK_COLUMNS = 128
FIRST_DAMPING = 0.01
LARGEST_DAMPING = 1.0


def prune_by_sparsegpt(request: PruneRequest) -> PruneOutcome:
    """Sweep over blocks of 128 input columns; the mask of a block is chosen on compensated weights.

    With U the upper Cholesky factor of H^-1, weight w_ij costs w_ij^2 / U_jj^2. Mixing happens at the
    block's selection, on the current weights, both norms taken once on the whole matrix before the sweep.

    Raises:
        ModelError: a Hessian with NaN, or one that no damping up to 1.0 makes positive definite.
    """
    assert request.statistics is not None and request.statistics.products is not None
    hessian = request.statistics.products * (2 / request.statistics.tokens)
    weight = request.weight.clone()
    dead = hessian.diagonal() == 0
    hessian.diagonal()[dead] = 1
    weight[:, dead] = 0
    upper, damping = _inverse_factor(hessian, request.name)
    scores = _Scores(request, weight, upper)
    pruned = torch.zeros_like(weight, dtype=torch.bool)
    for start in range(0, weight.shape[1], BLOCK_COLUMNS):
        columns = slice(start, min(start + BLOCK_COLUMNS, weight.shape[1]))
        score = scores.of(weight[:, columns], columns)
        mask = lowest_mask(score.reshape(1, -1), request.sparsity).reshape(score.shape)
        pruned[:, columns] = mask
        errors = _compensate_within(weight[:, columns], mask, upper[columns, columns])
        weight[:, columns.stop :] -= errors @ upper[columns, columns.stop :]
    return PruneOutcome(pruned, weight.masked_fill_(pruned, 0), damping)


class _Scores:
    """The selection score of a block of columns, with the matrix-wide norms of Eq. 7."""

    def __init__(self, request: PruneRequest, weight: torch.Tensor, upper: torch.Tensor) -> None:
        self.diagonal = upper.diagonal().square()
        self.moment = request.moment if Fraction(request.lam) else None
        self.scale = request.scale
        if self.moment is not None:
            lam = float(Fraction(request.lam))
            self.base_scale = (1 - lam) * unit_scale(weight.square() / self.diagonal)
            self.saliency_scale = lam * unit_scale(importance(weight, self.moment, self.scale))

    def of(self, weight: torch.Tensor, columns: slice) -> torch.Tensor:
        base = weight.square() / self.diagonal[columns]
        if self.moment is None:
            return base
        saliency = importance(weight, self.moment[:, columns], self.scale)
        return base * self.base_scale + saliency * self.saliency_scale


def _compensate_within(weight: torch.Tensor, mask: torch.Tensor, upper: torch.Tensor) -> torch.Tensor:
    """Zero the masked weights column by column and let the later columns of the block compensate.

    Args:
        weight: (d_out, C) view of the block's weights, changed in place.
        mask: (d_out, C) True where a weight goes.
        upper: (C, C) the block's part of U.

    Returns:
        (d_out, C) errors by which the columns behind the block are compensated.
    """
    # Columns as contiguous rows: each step then reads and writes memory in order.
    current, kept = weight.T.contiguous(), (~mask).T.contiguous()
    errors = torch.empty_like(current)
    for column in range(current.shape[0]):
        quantised = current[column] * kept[column]
        errors[column] = (current[column] - quantised) / upper[column, column]
        current[column] = quantised
        current[column + 1 :].addr_(upper[column, column + 1 :], errors[column], alpha=-1)
    weight.copy_(current.T)
    return errors.T


def _inverse_factor(hessian: torch.Tensor, name: str) -> tuple[torch.Tensor, float]:
    """Upper Cholesky factor of the damped Hessian's inverse, and the damping that it took."""
    if not torch.isfinite(hessian).all():
        raise ModelError(f"Expected a finite Hessian for {name}, but it holds NaN or infinity; try float32.")
    mean = float(hessian.diagonal().mean())
    damping = FIRST_DAMPING
    while damping <= LARGEST_DAMPING:
        damped = hessian.clone()
        damped.diagonal().add_(damping * mean)
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
            if not failed:
                if damping > FIRST_DAMPING:
                    logger.warning("%s: the Hessian needed a damping of %g.", name, damping)
                return upper, damping
        damping *= 10
    raise ModelError(
        f"Expected the Hessian of {name} to be positive definite, but a damping of {LARGEST_DAMPING:g} is not enough; "
        "use more prune rows or float32."
    )


BASE_PRUNERS.register("sparsegpt")(BasePruner(needs="products", prune=prune_by_sparsegpt))
