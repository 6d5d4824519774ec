"""Prune a model block by block, each block's statistics taken with the blocks before it pruned."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True)
class DenseStart:
    """What pruning begins with, whatever lambda is: the dense first block on the prune role.

    Attributes:
        calls: what each batch passes through the blocks; empty for a pruner that looks at no activation.
        statistics: inputs of the first block's matrices, by name.
        regional: moments of its regional gradients, for a pruner that ranks by those.
    """

    calls: tuple[BlockCalls, ...] = ()
    statistics: Mapping[str, InputStatistics] = field(default_factory=dict)
    regional: Mapping[str, torch.Tensor] | None = None


def dense_start(
    scorer: LabelScorer,
    blocks: Sequence[Block],
    texts: Sequence[str],
    labels: Sequence[int],
    *,
    base_pruner: str,
    batch_tokens: int,
) -> DenseStart:
    """Run the dense first block once, for all candidates; arguments as in `prune_model`."""
    pruner: BasePruner = BASE_PRUNERS[base_pruner]
    if pruner.needs == "nothing":
        return DenseStart()
    with torch.no_grad():
        calls = _capture(scorer, blocks, texts, labels, batch_tokens)
        if pruner.gradients == "regional" and not _separable(blocks[0], calls):
            calls = _capture(scorer, blocks, texts, labels, batch_tokens, max_rows=1)
        return DenseStart(tuple(calls), *_observe(pruner, blocks[0], 0, calls))


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
    start = dense_start(scorer, blocks, texts, labels, base_pruner=base_pruner, batch_tokens=batch_tokens)
    return prune_from(
        start,
        blocks,
        base_pruner=base_pruner,
        sparsity=sparsity,
        lam=lam,
        saliency=saliency,
        base_moments=base_moments,
        seed=seed,
        description=description,
    )


def prune_from(
    start: DenseStart,
    blocks: Sequence[Block],
    *,
    base_pruner: str,
    sparsity: str,
    lam: str,
    saliency: Saliency | None,
    base_moments: Mapping[str, torch.Tensor] | None = None,
    seed: int,
    description: str | None = None,
) -> tuple[PrunedMatrix, ...]:
    """`prune_model` from what several candidates share; `start` is left as it is."""
    pruner: BasePruner = BASE_PRUNERS[base_pruner]
    if Fraction(lam) and saliency is None:
        raise ModelError(f"Expected a saliency for lambda = {lam}, but there is none.")
    if pruner.gradients in ("square", "absolute") and base_moments is None:
        raise ModelError(f"Expected gradients for the base pruner {base_pruner}, but there are none.")
    outcomes: list[PrunedMatrix] = []
    calls = [replace(call) for call in start.calls]
    statistics, regional = start.statistics, start.regional
    with torch.no_grad(), progress_bar(len(blocks), description, "block") as bar:
        for index, block in enumerate(blocks):
            if index:
                statistics, regional = _observe(pruner, block, index, calls)
            for matrix in block.matrices:
                request = PruneRequest(
                    name=matrix.name,
                    weight=matrix.weight.to(torch.float32, copy=True).contiguous(),
                    statistics=statistics.get(matrix.name),
                    moment=_moment(saliency.moments if saliency and Fraction(lam) else None, matrix),
                    scale=saliency.scale if saliency else "square",
                    base_moment=_moment(regional or base_moments, matrix),
                    lam=lam,
                    sparsity=sparsity,
                    generator=_generator(seed, matrix.name),
                )
                outcomes.append(_apply(pruner, request, matrix))
            for call in calls[: len(calls) if index + 1 < len(blocks) else 0]:
                call.hidden = run_block(block, call.hidden, call.arguments[index])
            bar.update(1)
    return tuple(outcomes)


def _observe(
    pruner: BasePruner, block: Block, index: int, calls: Sequence[BlockCalls]
) -> tuple[Mapping[str, InputStatistics], Mapping[str, torch.Tensor] | None]:
    """Statistics and regional moments of a block whose matrices are all dense."""
    if not calls:
        return {}, None
    statistics = collect_statistics(block, index, calls, products=pruner.needs == "products")
    return statistics, regional_moments(block, index, calls) if pruner.gradients == "regional" else None


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
