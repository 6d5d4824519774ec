"""Ordinary sequences of prompt + label, one for each label: the reference, and the fallback of packed passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .examples import LabelledBatch


@dataclass(frozen=True)
class PlainBatch(LabelledBatch):
    """Left-padded sequences of prompt + label.

    Attributes:
        label_lengths: (B,) tokens of each row's label, at the end of the row.
    """

    label_lengths: torch.Tensor


def plain_batch(
    sequences: list[tuple[int, ...]],
    label_lengths: list[int],
    rows: tuple[int, ...],
    pad_token_id: int,
    device: torch.device,
) -> PlainBatch:
    """Left-padded rows with the ordinary two-dimensional mask."""
    width = max(len(sequence) for sequence in sequences)
    input_ids = torch.full((len(sequences), width), pad_token_id)
    real = torch.zeros(len(sequences), width, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        input_ids[row, width - len(sequence) :] = torch.tensor(sequence)
        real[row, width - len(sequence) :] = 1
    inputs = {
        "input_ids": input_ids.to(device),
        "attention_mask": real.to(device),
        "position_ids": (real.cumsum(-1) - 1).clamp(min=0).to(device),
    }
    return PlainBatch(rows, inputs, real.bool().to(device), torch.tensor(label_lengths))


def plain_log_p(model: Any, batch: PlainBatch, length_normalize: bool, keeps_logits: bool) -> torch.Tensor:
    """(B,) log p(y | x) of each row's own label, differentiable, in float32 or better.

    Args:
        model: a causal language model.
        batch: its sequences.
        length_normalize: divide by the label's number of tokens.
        keeps_logits: whether the model can leave out logits before the last positions.
    """
    keep = int(batch.label_lengths.max()) + 1
    kept = {"logits_to_keep": keep} if keeps_logits else {}
    logits = model(**batch.inputs, use_cache=False, **kept).logits[:, -keep:]  # (B, P, V)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    targets = batch.inputs["input_ids"][:, 1 - keep :]  # (B, P - 1): what each position predicts
    chosen = logits[:, :-1].gather(-1, targets[..., None])[..., 0]
    log_p = chosen - logits[:, :-1].logsumexp(-1)
    lengths = batch.label_lengths.to(log_p.device)  # (B,)
    places = torch.arange(keep - 1, device=log_p.device)
    log_p = torch.where(places >= keep - 1 - lengths[:, None], log_p, 0.0).sum(-1)
    return log_p / lengths if length_normalize else log_p
