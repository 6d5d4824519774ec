"""Packed scoring of all labels beside one forward pass for each label with the prompt repeated.

    python tests/benchmarks/bench_scoring.py --model MODEL --datasets DATASET [DATASET ...]

The other side is written as an evaluation harness does it, and as well: every pair of a prompt and a
label is a sequence of its own without the label's last token, which is only predicted; sequences of all
rows and labels are batched together, sorted by length, under the same budget of tokens; the vocabulary
head runs on the last positions only, and the log-softmax on the labels' own positions only. It is slow
with many labels, so both sides of a ratio run on the same few --reference_rows; the fraction of the
matrix rate is that of packed scoring on all --rows.

Keys: scoring_over_per_label (time of one pass for each label / time of packed scoring), token_ratio (the
same of tokens, which bounds it where the head is small), scoring_of_bound (the first / the second),
counted_ratio (of counted work, head included), distinct_token_ratio (of tokens, if the other side ran
sequences with the same inputs only once, as some harnesses do), each followed by `.<data set>`. Nothing
here asserts a time; run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from common import (
    Bench,
    Count,
    Report,
    Rows,
    Run,
    add_arguments,
    add_datasets,
    count_scoring,
    measure,
    median_ratio,
    open_bench,
    open_model,
)

from optimum_cpp.scoring import VerbalizerScorer
from optimum_cpp.scoring.batching import length_sorted_batches

LARGEST_DIFFERENCE = 1e-2
Scores = npt.NDArray[np.float64]


@torch.inference_mode()
def per_label_scores(scorer: VerbalizerScorer, texts: list[str]) -> Scores:
    """(N, K) log p(y | x), by one sequence for each row and label."""
    prompts, labels = scorer.encoder.encode(texts).prompts, scorer.encoder.label_tokens
    pairs = [(row, label) for row in range(len(prompts)) for label in range(len(labels))]
    lengths = [len(prompts[row]) + len(labels[label]) - 1 for row, label in pairs]
    scores = np.empty(len(pairs))
    for places in length_sorted_batches(lengths, scorer.batch_tokens):
        chosen = [pairs[place] for place in places]
        scores[places] = _batch_scores(
            scorer, [prompts[row] for row, _ in chosen], [labels[label] for _, label in chosen]
        )
    return scores.reshape(len(prompts), len(labels))


def _batch_scores(
    scorer: VerbalizerScorer, prompts: Sequence[tuple[int, ...]], labels: Sequence[tuple[int, ...]]
) -> Scores:
    """(B,) summed log-probabilities of the labels' tokens."""
    keep = max(len(tokens) for tokens in labels)
    inputs = _left_padded(
        [prompt + tokens[:-1] for prompt, tokens in zip(prompts, labels, strict=True)], scorer.model.device
    )
    # Sequences end together, so the label positions are among the last ones of every row.
    kept = {"logits_to_keep": keep} if "logits_to_keep" in inspect.signature(scorer.model.forward).parameters else {}
    model: Any = scorer.model
    logits = model(**inputs, use_cache=False, **kept).logits[:, -keep:]  # (B, P, V)
    rows = [row for row, tokens in enumerate(labels) for _ in tokens]
    columns = [keep - len(tokens) + place for tokens in labels for place in range(len(tokens))]
    wide = logits[rows, columns].to(torch.promote_types(logits.dtype, torch.float32))  # (L, V)
    targets = torch.tensor([token for tokens in labels for token in tokens], device=wide.device)
    log_p = wide.log_softmax(-1).gather(-1, targets[:, None])[:, 0].double().cpu()
    return np.asarray(torch.zeros(len(labels), dtype=torch.float64).index_add(0, torch.tensor(rows), log_p))


def _left_padded(sequences: list[tuple[int, ...]], device: torch.device) -> dict[str, torch.Tensor]:
    """Token ids with the ordinary two-dimensional mask; any token can pad."""
    width = max(len(sequence) for sequence in sequences)
    ids = torch.tensor([(0,) * (width - len(sequence)) + sequence for sequence in sequences])
    real = torch.tensor([[0] * (width - len(sequence)) + [1] * len(sequence) for sequence in sequences])
    positions = (real.cumsum(-1) - 1).clamp(min=0)
    return {"input_ids": ids.to(device), "attention_mask": real.to(device), "position_ids": positions.to(device)}


def count_per_label(scorer: VerbalizerScorer, rows: Rows) -> Count:
    """What one sequence for each row and label reads and scores."""
    prompts, labels = scorer.encoder.encode(rows.texts).prompts, scorer.encoder.label_tokens
    tokens = sum(len(prompt) + len(label) - 1 for prompt in prompts for label in labels)
    return Count(tokens, len(prompts) * sum(len(label) for label in labels))


@dataclass(frozen=True)
class Way:
    """One way to score, the rows that it runs on, and how much there is to do."""

    score: Callable[[list[str]], Scores]
    rows: Rows
    count: Count


def ways_of(bench: Bench, scorer: VerbalizerScorer, options: argparse.Namespace) -> dict[str, Way]:
    """Packed scoring of all rows, and both ways on the few."""
    few, everything = bench.first(options.reference_rows), bench.first(options.rows)
    return {
        f"scoring.{bench.name}": Way(scorer.log_probabilities, everything, count_scoring(bench, everything)),
        f"scoring_few.{bench.name}": Way(scorer.log_probabilities, few, count_scoring(bench, few)),
        f"per_label.{bench.name}": Way(partial(per_label_scores, scorer), few, count_per_label(scorer, few)),
    }


def count_distinct(scorer: VerbalizerScorer, rows: Rows) -> int:
    """Tokens of the same sequences, where labels that differ only in their last token share one."""
    starts = {label[:-1] for label in scorer.encoder.label_tokens}
    prompts = scorer.encoder.encode(rows.texts).prompts
    return sum(len(prompt) + len(start) for prompt in prompts for start in starts)


def run_repeats(bench: Bench, ways: dict[str, Way], repeats: int, report: Report) -> tuple[list[dict[str, Run]], float]:
    """Every way again and again; and how much the scores of the few rows differ between the two."""
    rate, found, difference = bench.matrix_rate(), [], 0.0
    for _ in range(repeats):
        runs: dict[str, Run] = {}
        scores: dict[str, Scores] = {}
        for name, way in ways.items():
            work = partial(way.score, way.rows.texts)
            scores[name], runs[name] = measure(name, work, way.count.forward(bench), rate)
            report.show(name, runs[name])
        ours, theirs = scores[f"scoring_few.{bench.name}"], scores[f"per_label.{bench.name}"]
        difference = max(difference, float(np.abs(ours - theirs).max()))
        found.append(runs)
    return found, difference


def compare(bench: Bench, options: argparse.Namespace, report: Report) -> None:
    """Both sides on one data set."""
    scorer, name = bench.scorer, bench.name
    if not isinstance(scorer, VerbalizerScorer) or not scorer.packed:
        raise SystemExit("Expected a decoder whose labels can be packed, but this model's cannot.")
    report.begin(f"{name}: {len(scorer.labels)} labels, {options.rows} rows, {scorer.model.dtype}")
    ways = ways_of(bench, scorer, options)
    repeats, difference = run_repeats(bench, ways, options.repeats, report)
    report.conclude_stages(repeats)
    theirs, ours = ways[f"per_label.{name}"].count, ways[f"scoring_few.{name}"].count
    distinct = count_distinct(scorer, ways[f"per_label.{name}"].rows)
    speedup = median_ratio(repeats, [f"per_label.{name}"], [f"scoring_few.{name}"])
    token_ratio = theirs.tokens / ours.tokens
    report.conclude(
        {
            f"scoring_over_per_label.{name}": speedup,
            f"token_ratio.{name}": token_ratio,
            f"counted_ratio.{name}": theirs.forward(bench) / ours.forward(bench),
            f"distinct_token_ratio.{name}": distinct / ours.tokens,
            f"scoring_of_bound.{name}": speedup / token_ratio,
            f"matrix_rate_fraction.scoring.{name}": report.figures[f"matrix_rate_fraction.scoring.{name}"],
            f"largest_difference.{name}": difference,
        }
    )
    if not difference < LARGEST_DIFFERENCE:
        raise SystemExit(f"Expected the same scores both ways on {name}, but they differ by {difference:g}.")


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rows=32)
    add_datasets(parser)
    parser.add_argument("--reference_rows", type=int, default=2, help="rows of both sides of the ratio (default: 2)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse_arguments(arguments)
    report = Report(options.json)
    report.record({"rows": float(options.rows), "reference_rows": float(options.reference_rows)})
    loaded = open_model(options)
    for dataset in options.datasets:
        compare(open_bench(loaded, dataset, options.split), options, report)


if __name__ == "__main__":
    main()
