"""Labels behind a cached prompt, for models on which a packed pass does not work."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .trie import TokenTrie


def cached_edges(
    model: Any, prompt: tuple[int, ...], labels: Sequence[tuple[int, ...]], trie: TokenTrie, pad_token_id: int
) -> npt.NDArray[np.float64]:
    """(E,) log-probabilities of the trie's edges: one pass over the prompt, one over all labels behind its cache."""
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    inputs: dict[str, Any] = {argument: cache, "use_cache": True}
    prompt_logits = model(torch.tensor([prompt], device=model.device), **inputs).logits[:, -1:]
    cache.batch_repeat_interleave(len(labels))
    width = max(len(tokens) for tokens in labels)
    ids = torch.tensor([tokens + (pad_token_id,) * (width - len(tokens)) for tokens in labels], device=model.device)
    label_logits = model(ids, **inputs).logits  # (K, W, V)
    logits = torch.cat([prompt_logits.expand(len(labels), -1, -1), label_logits], dim=1)
    edges = np.empty(len(trie.edge_tokens))
    for label, (tokens, path) in enumerate(zip(labels, trie.label_edges, strict=True)):
        edges[list(path)] = _log_p(logits[label], tokens)
    return edges


def _log_p(logits: torch.Tensor, tokens: Sequence[int]) -> npt.NDArray[np.float64]:
    """(T,) log-probability of each token under the (W, V) logits of its place, in float32 or better."""
    wide = logits[: len(tokens)].to(torch.promote_types(logits.dtype, torch.float32))
    chosen = wide.gather(-1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0]
    return np.asarray((chosen - wide.logsumexp(-1)).double().cpu().numpy())
