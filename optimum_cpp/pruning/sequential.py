"""Prune a model block by block, each block's statistics taken with the blocks before it pruned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from ..blocks import Block, BlockCalls, Matrix, capture_block_calls, run_block
from ..errors import ModelError
from ..progress import progress_bar
from ..registry import BASE_PRUNERS
from ..saliency import Inseparable, Saliency, regional_moments
from ..scoring import LabelScorer
from .base import BasePruner, PruneRequest
from .statistics import InputStatistics, collect_statistics


@dataclass(frozen=True)
class PrunedMatrix:
    """What happened to one matrix.

    Attributes:
        name: dotted name of the matrix.
        size: number of its weights.
        zeros: how many of them are zero now.
        damping: damping of its Hessian, or None.
    """

    name: str
    size: int
    zeros: int
    damping: float | None


def prune_model(
    scorer: LabelScorer,
    blocks: Sequence[Block],
    texts: Sequence[str],
    labels: Sequence[int],
    *,
    base_pruner: str,
    sparsity: str,
    lam: str,
    saliency: Saliency | None,
    base_moments: Mapping[str, torch.Tensor] | None = None,
    batch_tokens: int,
    seed: int,
    description: str | None = None,
) -> tuple[PrunedMatrix, ...]:
    """Prune every matrix of the blocks in place (CPP paper, section 4; method: sequential calibration).

    Args:
        scorer: the classifier; statistics run on prompt + true label of the prune role.
        blocks: from `find_blocks`.
        texts: texts of the prune role.
        labels: their label indices.
        base_pruner: name in `BASE_PRUNERS`.
        sparsity: share of each comparison group, a decimal string; 0 changes nothing.
        lam: weight of the saliency, a decimal string.
        saliency: of every matrix; may be None where lam is 0.
        base_moments: gradients by matrix name, for a base pruner that ranks by those of the whole model.
        batch_tokens: most tokens in a batch.
        seed: of pruners that use randomness.
        description: name of the progress bar, none without it.

    Raises:
        ModelError: non-finite activations or Hessians; the matrix is named.
    """
    pruner: BasePruner = BASE_PRUNERS[base_pruner]
    if Fraction(lam) and saliency is None:
        raise ModelError(f"Expected a saliency for lambda = {lam}, but there is none.")
    if pruner.gradients in ("square", "absolute") and base_moments is None:
        raise ModelError(f"Expected gradients for the base pruner {base_pruner}, but there are none.")
    outcomes: list[PrunedMatrix] = []
    with torch.no_grad(), progress_bar(len(blocks), description, "block") as bar:
        calls = [] if pruner.needs == "nothing" else _capture(scorer, blocks, texts, labels, batch_tokens)
        if pruner.gradients == "regional" and not _separable(blocks[0], calls):
            calls = _capture(scorer, blocks, texts, labels, batch_tokens, max_rows=1)
        for index, block in enumerate(blocks):
            statistics: Mapping[str, InputStatistics] = {}
            if calls:
                statistics = collect_statistics(block, index, calls, products=pruner.needs == "products")
            if pruner.gradients == "regional":
                base_moments = regional_moments(block, index, calls)
            for matrix in block.matrices:
                request = PruneRequest(
                    name=matrix.name,
                    weight=matrix.weight.to(torch.float32, copy=True).contiguous(),
                    statistics=statistics.get(matrix.name),
                    moment=_moment(saliency.moments if saliency and Fraction(lam) else None, matrix),
                    scale=saliency.scale if saliency else "square",
                    base_moment=_moment(base_moments, matrix),
                    lam=lam,
                    sparsity=sparsity,
                    generator=_generator(seed, matrix.name),
                )
                outcomes.append(_apply(pruner, request, matrix))
            for call in calls[: len(calls) if index + 1 < len(blocks) else 0]:
                call.hidden = run_block(block, call.hidden, call.arguments[index])
            bar.update(1)
    return tuple(outcomes)


def _separable(block: Block, calls: Sequence[BlockCalls]) -> bool:
    """Whether the gradients of a batch's examples can be told apart; the batch with most rows shows it."""
    try:
        regional_moments(block, 0, [max(calls, key=lambda call: len(call.real))])
    except Inseparable:
        return False
    return True


def _moment(moments: Mapping[str, torch.Tensor] | None, matrix: Matrix) -> torch.Tensor | None:
    return None if moments is None else moments[matrix.name].to(matrix.weight.device)


def _capture(
    scorer: LabelScorer,
    blocks: Sequence[Block],
    texts: Sequence[str],
    labels: Sequence[int],
    batch_tokens: int,
    max_rows: int | None = None,
) -> list[BlockCalls]:
    extra = {"use_cache": False} if scorer.kind == "decoder" else {}
    return [
        capture_block_calls(scorer.model, blocks, {**batch.inputs, **extra}, batch.real)  # type: ignore[dict-item]
        for batch in scorer.labelled_batches(texts, labels, batch_tokens, max_rows=max_rows)
    ]


def _apply(pruner: BasePruner, request: PruneRequest, matrix: Matrix) -> PrunedMatrix:
    if Fraction(request.sparsity) == 0:
        return PrunedMatrix(matrix.name, matrix.weight.numel(), int((matrix.weight == 0).sum()), None)
    outcome = pruner.prune(request)
    if outcome.weight is not None:
        matrix.weight.copy_(outcome.weight)
    matrix.weight.masked_fill_(outcome.pruned, 0)
    zeros = int((matrix.weight == 0).sum())
    return PrunedMatrix(matrix.name, matrix.weight.numel(), zeros, outcome.damping)


def _generator(seed: int, name: str) -> torch.Generator:
    """A stream for each matrix, so that the order of the matrices does not matter."""
    stream = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")
    return torch.Generator().manual_seed(stream)
