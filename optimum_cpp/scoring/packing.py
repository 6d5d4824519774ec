"""Packed batches: prompts with a token trie behind them, in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .trie import TokenTrie


@dataclass(frozen=True)
class PackedBatch:
    """Left-padded rows of prompt tokens followed by trie nodes, and where each label's tokens are scored.

    The log-probability of a pair (row, label) is the sum over its edges; pairs stand in the order of the
    rows and, within a row, of its trie's labels.

    Attributes:
        input_ids: (B, S) token ids.
        position_ids: (B, S) logical positions; a node's position is its depth behind the prompt.
        visible: (B, S, S) bool, True where the row's token may attend to the column's token.
        real: (B, S) bool, False on padding.
        queries: (Q,) flat positions (row * S + column) at which the vocabulary head is needed.
        edge_queries: (E,) which of the queries scores an edge.
        edge_tokens: (E,) the token that the edge predicts.
        path_edges: (L,) the edges of every pair, one after the other.
        path_pairs: (L,) the pair that such an edge belongs to.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    visible: torch.Tensor
    real: torch.Tensor
    queries: torch.Tensor
    edge_queries: torch.Tensor
    edge_tokens: torch.Tensor
    path_edges: torch.Tensor
    path_pairs: torch.Tensor


def pack(prompts: Sequence[Sequence[int]], tries: Sequence[TokenTrie], pad_token_id: int) -> PackedBatch:
    """Lay each prompt and then the nodes of its trie at the end of a row.

    Rows end together, as a decoder pads. Padding attends only to itself: a row of the mask without any
    True gives NaN in some kernels, and NaN spreads through zero attention weights.
    """
    width = max(len(prompt) + len(trie.tokens) for prompt, trie in zip(prompts, tries, strict=True))
    input_ids = np.full((len(prompts), width), pad_token_id, dtype=np.int64)
    position_ids = np.zeros((len(prompts), width), dtype=np.int64)
    visible = np.zeros((len(prompts), width, width), dtype=bool)
    real = np.zeros((len(prompts), width), dtype=bool)
    ancestors = {id(trie): trie.ancestor_mask() for trie in tries}
    for row, (prompt, trie) in enumerate(zip(prompts, tries, strict=True)):
        border = width - len(trie.tokens)
        start = border - len(prompt)
        input_ids[row, start:border] = prompt
        input_ids[row, border:] = trie.tokens
        position_ids[row, start:border] = np.arange(len(prompt))
        position_ids[row, border:] = len(prompt) - 1 + np.asarray(trie.depths, dtype=np.int64)
        visible[row, start:border, start:border] = np.tri(len(prompt), dtype=bool)
        visible[row, border:, start:border] = True
        visible[row, border:, border:] = ancestors[id(trie)]
        visible[row, range(start), range(start)] = True
        real[row, start:] = True
    arrays = (input_ids, position_ids, visible, real, *_places(tries, width))
    return PackedBatch(*(torch.from_numpy(array) for array in arrays))


def _places(tries: Sequence[TokenTrie], width: int) -> list[npt.NDArray[np.int64]]:
    """Queries, edges and paths of all rows, numbered through the batch."""
    parts: list[list[npt.NDArray[np.int64]]] = [[], [], [], [], []]
    queries = edges = pairs = 0
    for row, trie in enumerate(tries):
        labels, path = trie.flat_paths()
        for part, array in zip(
            parts,
            (
                row * width + np.arange(width - trie.num_queries, width),
                np.asarray(trie.edge_queries) + queries,
                np.asarray(trie.edge_tokens),
                path + edges,
                labels + pairs,
            ),
            strict=True,
        ):
            part.append(array)
        queries += trie.num_queries
        edges += len(trie.edge_tokens)
        pairs += len(trie.label_edges)
    return [np.concatenate(part).astype(np.int64) for part in parts]


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
