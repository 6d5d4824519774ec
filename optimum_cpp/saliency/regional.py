"""Regional gradients of one block (Wanda++, Yang et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..blocks import Block, BlockCalls, run_block
from .recorder import GradientMoments, Recorder


def regional_moments(block: Block, index: int, calls: Sequence[BlockCalls]) -> dict[str, torch.Tensor]:
    """Mean over examples of the squared gradient of the l2 norm of the block's output.

    The norm is over an example's real tokens and all channels; the gradient stays inside the block.

    Args:
        block: the block, all its matrices still dense.
        index: its place among the blocks.
        calls: the batches, their hidden states at this block's input.

    Returns:
        (d_out, d_in) float32 by matrix name.

    Raises:
        Inseparable: examples of a batch whose gradients cannot be told apart.
    """
    moments = GradientMoments(block.matrices, "square")
    examples = 0
    flags = [(parameter, parameter.requires_grad) for parameter in block.module.parameters()]
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(False)
        for call in calls:
            real = call.real[:, :, None].to(call.hidden.device)
            with torch.enable_grad(), Recorder(block.matrices, call.real, moments) as recorder:
                hidden = call.hidden.detach().requires_grad_(True)
                output = run_block(block, hidden, call.arguments[index])  # (B, S, d)
                wide = output.to(torch.promote_types(output.dtype, torch.float32)) * real
                norms = wide.flatten(1).norm(dim=1)  # (B,)
                recorder.backward(norms.sum(), [1.0] * len(norms), last=True)
            examples += len(norms)
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
    return {name: moment / examples for name, moment in moments.by_name.items()}
