"""The vocabulary head at a few positions, without ever holding all their logits."""

from __future__ import annotations

from typing import Any

import torch

# Bytes of float32 logits that exist at a time: about what stays in a CPU's cache and memory pool.
CHUNK_BYTES = 2**24


class EdgeLogProbabilities(torch.autograd.Function):
    """log p(token | position) of chosen tokens at chosen positions, with a gradient for the hidden states.

    The head runs on a chunk of positions at a time and its logits are dropped after their log-sum-exp
    and the chosen entries are taken; the backward pass computes them again, and only for positions whose
    gradient is not zero. The head's own weights get no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.nn.Linear,
        queries: torch.Tensor,
        tokens: torch.Tensor,
    ) -> torch.Tensor:
        """The chosen entries of the log-softmax.

        Args:
            ctx: autograd's context.
            hidden: (Q, d) the head's inputs.
            head: the output embeddings, (V, d).
            queries: (E,) rows of `hidden`.
            tokens: (E,) vocabulary entries.

        Returns:
            (E,) float32, or float64 for a float64 model.
        """
        wide = torch.promote_types(hidden.dtype, torch.float32)
        normalizers = torch.empty(len(hidden), dtype=wide, device=hidden.device)
        logits = torch.empty(len(queries), dtype=wide, device=hidden.device)
        for rows in _chunks(len(hidden), head):
            chunk = head(hidden[rows]).to(wide)  # (C, V)
            normalizers[rows] = chunk.logsumexp(-1)
            here = ((queries >= rows.start) & (queries < rows.stop)).nonzero()[:, 0]
            logits[here] = chunk[queries[here] - rows.start, tokens[here]]
        ctx.save_for_backward(hidden, normalizers, queries, tokens)
        ctx.head = head
        return logits - normalizers[queries]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """d/dh of sum_e g_e (logit_e - logsumexp) = sum_e g_e (onehot_e - softmax) W."""
        (gradient,) = gradients  # (E,)
        hidden, normalizers, queries, tokens = ctx.saved_tensors
        totals = torch.zeros_like(normalizers).index_add_(0, queries, gradient)  # (Q,)
        found = torch.zeros_like(hidden)
        touched = torch.zeros_like(totals, dtype=torch.bool).index_fill_(0, queries[gradient != 0], True)
        active = touched.nonzero()[:, 0]
        place = torch.full((len(hidden),), -1, device=hidden.device)
        place[active] = torch.arange(len(active), device=hidden.device)
        for rows in _chunks(len(active), ctx.head):
            chosen = active[rows]
            inner = ctx.head(hidden[chosen]).to(totals.dtype)  # (C, V)
            inner.sub_(normalizers[chosen, None]).exp_().mul_(-totals[chosen, None])
            where = place[queries] - rows.start  # (E,)
            here = ((where >= 0) & (where < rows.stop - rows.start)).nonzero()[:, 0]
            inner.index_put_((where[here], tokens[here]), gradient[here], accumulate=True)
            found[chosen] = inner.to(hidden.dtype) @ ctx.head.weight
        return found, None, None, None


def edge_log_probabilities(
    hidden: torch.Tensor, head: torch.nn.Linear, queries: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """(E,) log p of `tokens` at rows `queries` of (Q, d) hidden states; see `EdgeLogProbabilities`."""
    found: torch.Tensor = EdgeLogProbabilities.apply(hidden, head, queries, tokens)  # type: ignore[no-untyped-call]
    return found


def plain_head(model: Any, inputs: dict[str, torch.Tensor]) -> torch.nn.Linear | None:
    """The output embeddings, where the model's logits are exactly what they make of its last hidden states.

    Some models cap or scale their logits behind the head (Gemma 2, Cohere). That shows when the head's
    output is made a thousand times larger on the way: only without such a step does the model return it
    unchanged.

    Args:
        model: a causal language model.
        inputs: one or a few sequences.
    """
    head = model.get_output_embeddings()
    if type(head) is not torch.nn.Linear:
        return None
    seen: list[torch.Tensor] = []

    def enlarge(module: Any, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        seen.extend((args[0], output * 1000))
        return seen[-1]

    handle = head.register_forward_hook(enlarge)
    try:
        with torch.inference_mode():
            logits = model(**inputs, use_cache=False).logits
    finally:
        handle.remove()
    with torch.inference_mode():
        hidden = model.base_model(**inputs, use_cache=False).last_hidden_state
    same = len(seen) == 2 and torch.equal(logits.to(seen[1].dtype), seen[1]) and torch.equal(hidden, seen[0])
    return head if same else None


def _chunks(positions: int, head: torch.nn.Linear) -> list[slice]:
    size = max(1, CHUNK_BYTES // (4 * head.out_features))
    return [slice(start, min(start + size, positions)) for start in range(0, positions, size)]
