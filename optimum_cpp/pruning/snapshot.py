"""Keep the prunable weights of a candidate on disk, so that what was evaluated is what is frozen."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from ..blocks import Matrix


def save_weights(matrices: Sequence[Matrix], path: str | os.PathLike[str]) -> None:
    """Write the matrices' weights, in their own dtype, to one safetensors file."""
    from safetensors.torch import save_file

    save_file({matrix.name: matrix.weight.contiguous().cpu() for matrix in matrices}, path)


def restore_weights(matrices: Sequence[Matrix], path: str | os.PathLike[str]) -> None:
    """Put saved weights back into the model, bit for bit."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as stored, torch.no_grad():
        for matrix in matrices:
            matrix.weight.copy_(stored.get_tensor(matrix.name))
