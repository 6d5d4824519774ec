"""Wanda and SparseGPT once more: plain numpy in float64, written from their papers and not from the package."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def wanda_importance(weight: Array, inputs: Array) -> Array:
    """|w_ij| times the root mean square of input j; weight (d_out, d_in), inputs (T, d_in)."""
    return np.abs(weight) * np.sqrt((inputs**2).mean(0))


def mixed(base: Array, weight: Array, gradients: Array | None, lam: float) -> Array:
    """Eq. 7 of the CPP paper over one matrix."""
    if gradients is None:
        return base
    saliency = weight**2 * gradients
    return (1 - lam) * base / np.sqrt((base**2).sum()) + lam * saliency / np.sqrt((saliency**2).sum())


def lowest(importance: Array, sparsity: str) -> npt.NDArray[np.bool_]:
    """The lowest floor(C * sparsity) entries of each row of (R, C), the first among equal ones."""
    count = importance.shape[1] * Fraction(sparsity) // 1
    mask = np.zeros(importance.shape, dtype=bool)
    for row, order in enumerate(np.argsort(importance, axis=1, kind="stable")):
        mask[row, order[:count]] = True
    return mask


def sparsegpt(
    weight: Array,
    inputs: Array,
    sparsity: str,
    *,
    gradients: Array | None = None,
    lam: float = 0.0,
    damping: float = 0.01,
    hessian: Array | None = None,
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Column by column with an explicit inverse Hessian, which loses each finished column by elimination.

    Returns the new weight and the mask of what is pruned, both (d_out, d_in).
    """
    hessian = 2 / len(inputs) * inputs.T @ inputs if hessian is None else hessian.copy()
    weight = weight.copy()
    width = weight.shape[1]
    for column in range(width):
        if hessian[column, column] == 0:
            hessian[column, column] = 1
            weight[:, column] = 0
    hessian += damping * np.trace(hessian) / width * np.eye(width)
    inverses = [np.linalg.inv(hessian)]
    for column in range(width):
        last = inverses[-1]
        inverses.append(last - np.outer(last[:, column], last[column]) / last[column, column])
    curvature = np.array([inverses[column][column, column] for column in range(width)])

    base_norm = np.sqrt(((weight**2 / curvature) ** 2).sum())
    saliency_norm = 1.0 if gradients is None else np.sqrt(((weight**2 * gradients) ** 2).sum())
    pruned = np.zeros(weight.shape, dtype=bool)
    for column in range(width):
        if column % 128 == 0:
            chosen: Any = slice(column, column + 128)
            score = weight[:, chosen] ** 2 / curvature[chosen]
            if gradients is not None:
                saliency = weight[:, chosen] ** 2 * gradients[:, chosen]
                score = (1 - lam) * score / base_norm + lam * saliency / saliency_norm
            pruned[:, chosen] = lowest(score.reshape(1, -1), sparsity).reshape(score.shape)
        inverse = inverses[column]
        error = np.where(pruned[:, column], weight[:, column], 0) / inverse[column, column]
        weight[:, column + 1 :] -= np.outer(error, inverse[column, column + 1 :])
        weight[pruned[:, column], column] = 0
    return weight, pruned
