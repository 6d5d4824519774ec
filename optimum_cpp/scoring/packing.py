"""Packed batches: prompts with a token trie behind them, in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .trie import TokenTrie


@dataclass(frozen=True)
class PackedBatch:
    """Left-padded rows of prompt tokens followed by trie nodes.

    Attributes:
        input_ids: (B, S) token ids.
        position_ids: (B, S) logical positions; a node's position is its depth behind the prompt.
        visible: (B, S, S) bool, True where the row's token may attend to the column's token.
        real: (B, S) bool, False on padding.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    visible: torch.Tensor
    real: torch.Tensor


def pack(prompts: Sequence[Sequence[int]], trie: TokenTrie, pad_token_id: int) -> PackedBatch:
    """Lay each prompt and then the trie's nodes at the end of a row.

    Rows end together, so that the positions the vocabulary head reads are the same in every row.
    Padding attends only to itself: a row of the mask without any True gives NaN in some kernels, and
    NaN spreads through zero attention weights.
    """
    nodes = len(trie.tokens)
    width = max(len(prompt) for prompt in prompts) + nodes
    input_ids = np.full((len(prompts), width), pad_token_id, dtype=np.int64)
    position_ids = np.zeros((len(prompts), width), dtype=np.int64)
    visible = np.zeros((len(prompts), width, width), dtype=bool)
    real = np.zeros((len(prompts), width), dtype=bool)
    ancestors = trie.ancestor_mask()
    for row, prompt in enumerate(prompts):
        start, border = width - nodes - len(prompt), width - nodes
        input_ids[row, start:border] = prompt
        input_ids[row, border:] = trie.tokens
        position_ids[row, start:border] = np.arange(len(prompt))
        position_ids[row, border:] = len(prompt) - 1 + np.asarray(trie.depths, dtype=np.int64)
        visible[row, start:border, start:border] = np.tri(len(prompt), dtype=bool)
        visible[row, border:, start:border] = True
        visible[row, border:, border:] = ancestors
        visible[row, range(start), range(start)] = True
        real[row, start:] = True
    return PackedBatch(*(torch.from_numpy(array) for array in (input_ids, position_ids, visible, real)))


def attention_masks(model: Any, batch: PackedBatch) -> torch.Tensor | dict[str, torch.Tensor]:
    """The batch's visibility as the mask(s) that the model's layers expect.

    A ready-made 4-D mask bypasses the model's own sliding windows, so they are applied here, on
    logical positions: one mask for each layer type where the configuration names several, else one.

    Raises:
        ValueError: a type of layer whose attention no mask here describes (chunked, linear).
    """
    config = model.config.get_text_config()
    layer_types = set(getattr(config, "layer_types", None) or ())
    unknown = layer_types - {"full_attention", "sliding_attention"}
    if unknown:
        raise ValueError(f"layers of type {', '.join(sorted(unknown))}")
    window = getattr(config, "sliding_window", None)
    full = _as_model_mask(model, batch.visible)
    if window is None or not getattr(config, "use_sliding_window", True):
        sliding = full
    else:
        distance = batch.position_ids[:, :, None] - batch.position_ids[:, None, :]  # (B, S, S)
        sliding = _as_model_mask(model, batch.visible & (distance < window))
    if len(layer_types) > 1:
        return {"full_attention": full, "sliding_attention": sliding}
    return full if layer_types == {"full_attention"} else sliding


def _as_model_mask(model: Any, visible: torch.Tensor) -> torch.Tensor:
    """(B, 1, S, S): boolean for scaled-dot-product attention, additive for the eager one."""
    if model.config._attn_implementation == "sdpa":
        return visible[:, None]
    additive = torch.zeros(visible.shape, dtype=model.dtype)
    return additive.masked_fill(~visible, torch.finfo(model.dtype).min)[:, None]
