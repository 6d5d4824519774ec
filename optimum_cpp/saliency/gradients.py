"""Moments of per-example gradients of candidate labels' scores (CPP paper, Eqs. 5-6), exact and sketched."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ..blocks import Matrix
from ..errors import ModelError, UsageError
from ..progress import progress_bar
from ..registry import SCORES
from ..scoring import LabelScorer, ScoreTransform, TargetBatch
from .recorder import GradientMoments, Inseparable, Moment, Recorder

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Estimator:
    """How the mean over examples and labels is estimated.

    Attributes:
        num_sketches: 0 for the exact value, one backward pass for each label of an example; else how many
            times the gradients of an example's labels are added with random signs and the sum is
            squared, which is unbiased because products of different signs vanish in expectation. Each
            sketch takes one backward pass for a whole batch of examples. They are squared apart, since
            adding examples up as well would save little and be noisier, and depend on the batches.
        seed: of the signs.
    """

    num_sketches: int = 0
    seed: int = 0


EXACT = Estimator()


def gradient_moments(
    scorer: LabelScorer,
    matrices: Sequence[Matrix],
    texts: Sequence[str],
    targets: Sequence[tuple[int, ...]],
    *,
    score: ScoreTransform,
    estimator: Estimator = EXACT,
    moment: Moment = "square",
    batch_tokens: int,
    description: str | None = None,
) -> dict[str, torch.Tensor]:
    """G(theta_j) = mean over examples i and their labels y of (d s(x_i, y) / d theta_j)^2.

    The square is taken before any sum. One forward pass serves a batch and all its labels; only
    activations need a graph, and no parameter gets a `.grad`.

    Args:
        scorer: the dense classifier.
        matrices: the eligible matrices.
        texts: N texts of the prune role.
        targets: for each text the labels Y_i; every example weighs the same, 1/|Y_i| for each label.
        score: the score s that is differentiated, its temperature and prior as constants.
        estimator: exact, or by random signs.
        moment: 'square', or 'absolute' for the mean of |d s / d theta| (SNIP).
        batch_tokens: most tokens in a batch; its activations stay in memory for the backward pass.
        description: name of the progress bar, none without it.

    Returns:
        (d_out, d_in) float32 (float64 for a float64 model) by matrix name.

    Raises:
        UsageError: an absolute moment by random signs, for which they are not unbiased.
        ModelError: parameters on the meta device or offloaded, a gradient that is zero everywhere, or
            NaN gradients (the matrix is named).
    """
    if estimator.num_sketches and moment != "square":
        raise UsageError("Expected the exact estimator for a mean of absolute gradients, but got random signs.")
    _refuse_offloaded(scorer.model)
    scores = _Scores(scorer, score, targets)
    signs = _signs(estimator, len(texts), len(scorer.labels))

    def run(max_rows: int | None) -> GradientMoments:
        moments = GradientMoments(matrices, moment)
        batches = scorer.target_batches(texts, scores.packed_targets, batch_tokens, max_rows=max_rows)
        with progress_bar(len(texts), description) as bar:
            for batch in batches:
                with Recorder(matrices, batch.real, moments, rows=batch.rows) as recorder:
                    pairs = scores.of(batch)
                    if signs is None:
                        _add_exactly(recorder, pairs, len(batch.rows))
                    else:
                        _add_sketches(recorder, pairs, len(batch.rows), signs)
                bar.update(len(set(batch.rows)))
        return moments

    with _frozen_parameters(scorer.model):
        try:
            moments = run(None)
        except Inseparable as found:
            logger.info("Saliency takes one example at a time: %s has inputs that examples share.", found)
            moments = run(1)
    for total in moments.by_name.values():
        total.div_(len(texts))
    _check(moments.by_name)
    return moments.by_name


@dataclass(frozen=True)
class _Pairs:
    """The wanted pairs of a batch.

    Attributes:
        scores: (P,) s(x, y), with a graph.
        places: (P,) row of the batch.
        examples: (P,) number of the example.
        labels: (P,) label column.
        weights: (P,) 1 / |Y_i|.
    """

    scores: torch.Tensor
    places: tuple[int, ...]
    examples: tuple[int, ...]
    labels: tuple[int, ...]
    weights: tuple[float, ...]


class _Scores:
    """The differentiated score of a batch's wanted pairs."""

    def __init__(self, scorer: LabelScorer, score: ScoreTransform, targets: Sequence[tuple[int, ...]]) -> None:
        self.scorer, self.score, self.targets = scorer, score, targets
        # A score that compares labels needs the log-probabilities of all of them.
        self.jointly = score.score != "nll"
        everything = tuple(range(len(scorer.labels)))
        self.packed_targets = [everything] * len(targets) if self.jointly else targets

    def of(self, batch: TargetBatch) -> _Pairs:
        log_p = self.scorer.target_log_probabilities(batch)  # (P,)
        places = [(place, label) for place, labels in enumerate(batch.targets) for label in labels]
        scores = self._jointly(log_p, batch) if self.jointly else -log_p
        wanted = [n for n, (place, label) in enumerate(places) if label in self.targets[batch.rows[place]]]
        examples = tuple(batch.rows[places[n][0]] for n in wanted)
        return _Pairs(
            scores=scores[wanted],
            places=tuple(places[n][0] for n in wanted),
            examples=examples,
            labels=tuple(places[n][1] for n in wanted),
            weights=tuple(1 / len(self.targets[example]) for example in examples),
        )

    def _jointly(self, log_p: torch.Tensor, batch: TargetBatch) -> torch.Tensor:
        width = len(self.scorer.labels)
        if any(len(labels) != width for labels in batch.targets):
            raise ModelError(
                f"Expected a model whose labels are scored in one pass for --saliency_score {self.score.score}, but "
                "this one runs each label by itself; use nll."
            )
        table = log_p.reshape(-1, width)  # (B, K)
        prior = torch.tensor(self.score.prior or 0.0, dtype=table.dtype, device=table.device)
        softmax = ((table - prior) / self.score.temperature).log_softmax(-1)
        found: torch.Tensor = SCORES[self.score.score].nonconformity(table, softmax)
        return found.flatten()


def _add_exactly(recorder: Recorder, pairs: _Pairs, rows: int) -> None:
    """One backward pass for the first label of every row, one for the second, ..."""
    slots: list[list[int]] = []
    taken = [0] * rows
    for pair, place in enumerate(pairs.places):
        if taken[place] == len(slots):
            slots.append([])
        slots[taken[place]].append(pair)
        taken[place] += 1
    for number, slot in enumerate(slots, start=1):
        weights = [0.0] * rows
        for pair in slot:
            weights[pairs.places[pair]] = pairs.weights[pair]
        recorder.backward(pairs.scores[slot].sum(), weights, last=number == len(slots))


def _add_sketches(recorder: Recorder, pairs: _Pairs, rows: int, signs: torch.Tensor) -> None:
    """(sum over a row's labels of sign * sqrt(weight) * gradient)^2, averaged over the sketches."""
    roots = torch.tensor(pairs.weights, dtype=pairs.scores.dtype, device=pairs.scores.device).sqrt()
    for number, table in enumerate(signs, start=1):  # (N, K)
        chosen = table[list(pairs.examples), list(pairs.labels)].to(roots)
        loss = (chosen * roots * pairs.scores).sum()
        recorder.backward(loss, [1 / len(signs)] * rows, last=number == len(signs))


def _signs(estimator: Estimator, rows: int, labels: int) -> torch.Tensor | None:
    """(S, N, K) int8 of -1 and 1, drawn before any batch is formed; None for the exact estimator."""
    if not estimator.num_sketches:
        return None
    generator = torch.Generator().manual_seed(estimator.seed)
    shape = (estimator.num_sketches, rows, labels)
    return torch.randint(0, 2, shape, generator=generator, dtype=torch.int8) * 2 - 1


def _check(moments: dict[str, torch.Tensor]) -> None:
    for name, moment in moments.items():
        if not torch.isfinite(moment).all():
            raise ModelError(f"Expected finite gradients, but those of {name} hold NaN or infinity; try float32.")
    if not any(bool(moment.any()) for moment in moments.values()):
        raise ModelError(
            "Expected the score to depend on the prunable weights, but every gradient is zero; "
            "is the head zero, or the model detached by a hook?"
        )


def _refuse_offloaded(model: torch.nn.Module) -> None:
    from accelerate.utils import has_offloaded_params

    for name, module in model.named_modules():
        on_meta = any(parameter.is_meta for parameter in module.parameters(recurse=False))
        if on_meta or has_offloaded_params(module):
            raise ModelError(
                f"Expected every weight in memory, but {name} is offloaded, where gradients are silently lost; "
                "load the model without a device map that offloads."
            )


@contextmanager
def _frozen_parameters(model: torch.nn.Module) -> Iterator[None]:
    """Let gradients flow through activations only; the graph begins at the first matrices that are watched."""
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    for parameter, _ in wanted:
        parameter.requires_grad_(False)
    try:
        with torch.enable_grad():
            yield
    finally:
        for parameter, flag in wanted:
            parameter.requires_grad_(flag)
