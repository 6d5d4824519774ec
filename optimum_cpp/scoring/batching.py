"""Length-sorted batches under a token budget, so that little padding is computed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# On a CPU, activations of about this many tokens stay in the cache and in memory that the allocator
# keeps; larger batches are slower. An accelerator wants enough work to fill it.
_CPU_BATCH_TOKENS, _ACCELERATOR_BATCH_TOKENS = 512, 4096


def default_batch_tokens(device: torch.device) -> int:
    """Most tokens of a batch where the user does not say."""
    return _CPU_BATCH_TOKENS if device.type == "cpu" else _ACCELERATOR_BATCH_TOKENS


def length_sorted_batches(lengths: Sequence[int], batch_tokens: int, max_rows: int | None = None) -> list[list[int]]:
    """Group rows of similar length, longest first, so that rows x longest stays within the budget.

    Args:
        lengths: tokens of each row.
        batch_tokens: most tokens of a batch, padding included; a single longer row is a batch alone.
        max_rows: most rows of a batch, where something other than tokens bounds it.

    Returns:
        Batches of row numbers; each row stands in exactly one.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    batches: list[list[int]] = []
    for row in order:
        current = batches[-1] if batches else []
        full = not current or (len(current) + 1) * lengths[current[0]] > batch_tokens
        if full or (max_rows is not None and len(current) >= max_rows):
            batches.append([row])
        else:
            current.append(row)
    return batches
