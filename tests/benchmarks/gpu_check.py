"""The same scores, gradients and masks on an accelerator as on the CPU, and how fast it makes them.

    python tests/benchmarks/gpu_check.py --model MODEL --datasets DATASET [DATASET ...] --device cuda:0

Opens the model on the CPU and on --device (`auto` spreads it over all devices there are), in float32
without TF32 unless --dtype says otherwise, and compares on the first data set: the log-probability of
every label, the gradient moments of `true` (exact) and `all` (by random signs), and which weights Wanda
and SparseGPT prune with and without saliency. On every data set it prints the fraction of the device's
matrix rate that scoring and saliency reach, with the peak memory. A difference beyond its tolerance is
named, and the exit code is then 1.

Keys: largest_difference.scores (absolute, of a log-probability), largest_difference.X (relative to the
largest moment of the matrix), equal_masks.X (share of equal entries), matrix_rate_fraction.X.<data set>.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from common import (
    Bench,
    Report,
    Rows,
    add_arguments,
    add_datasets,
    count_scoring,
    figures_of,
    kept_weights,
    measure,
    open_bench,
    saliency_operations,
)

from optimum_cpp.loading import LoadedModel, load_model
from optimum_cpp.pruning import prune_model
from optimum_cpp.saliency import EXACT, Estimator, Saliency, Targets, all_labels, gradient_moments, true_labels
from optimum_cpp.scoring import ScoreTransform

# Other kernels add up in another order. In half precision that is worth a thousandth of a moment and
# changes the order of nearly equal importances; a log-probability is a sum of several tokens' ones.
SCORE_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5, torch.float16: 0.1}
MOMENT_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 5e-2}
EQUAL_MASKS = {torch.float32: 0.999, torch.bfloat16: 0.97, torch.float16: 0.97}
PRUNERS = ("wanda", "sparsegpt")


@dataclass(frozen=True)
class Outcome:
    """What one device made of the rows.

    Attributes:
        scores: (N, K) log p(y | x).
        moments: by saliency, then by matrix.
        masks: by pruner, then by matrix, True where a weight is pruned.
    """

    scores: torch.Tensor
    moments: dict[str, dict[str, torch.Tensor]]
    masks: dict[str, dict[str, torch.Tensor]]


def _saliency(bench: Bench, rows: Rows, name: str) -> tuple[Targets, Estimator]:
    """`true` exactly, or `all` by random signs, which do not depend on the device."""
    if name == "true":
        return true_labels(rows.labels), EXACT
    return all_labels(len(rows.texts), len(bench.scorer.labels)), Estimator(num_sketches=1, seed=0)


def moments_of(bench: Bench, rows: Rows, name: str) -> dict[str, torch.Tensor]:
    """Gradient moments by matrix, on the CPU."""
    targets, estimator = _saliency(bench, rows, name)
    found = gradient_moments(
        bench.scorer, bench.matrices, rows.texts, targets,
        score=ScoreTransform("nll"), estimator=estimator, batch_tokens=bench.scorer.batch_tokens,
    )  # fmt: skip
    return {matrix: moment.cpu() for matrix, moment in found.items()}


def outcome_of(bench: Bench, rows: Rows) -> Outcome:
    """Everything that is compared; the model is dense again afterwards."""
    scores = torch.from_numpy(bench.scorer.log_probabilities(rows.texts))
    moments = {name: moments_of(bench, rows, name) for name in ("true", "all")}
    masks = {}
    with kept_weights(bench) as restore:
        for pruner in PRUNERS:
            for lam in ("0", "0.3"):
                prune_model(
                    bench.scorer, bench.blocks, rows.texts, rows.labels, base_pruner=pruner, sparsity="0.5", lam=lam,
                    saliency=Saliency(moments["true"], "square"), batch_tokens=bench.scorer.batch_tokens, seed=0,
                )  # fmt: skip
                masks[f"{pruner}@{lam}"] = {matrix.name: (matrix.weight == 0).cpu() for matrix in bench.matrices}
                restore()
    return Outcome(scores, moments, masks)


def differences(found: Outcome, expected: Outcome) -> dict[str, float]:
    """Largest differences and shares of equal entries, under the keys above."""
    figures = {"largest_difference.scores": float((found.scores - expected.scores).abs().max())}
    for name, moments in expected.moments.items():
        largest = max(
            float((found.moments[name][matrix] - moment).abs().max() / moment.abs().max())
            for matrix, moment in moments.items()
        )
        figures[f"largest_difference.{name}"] = largest
    for name, masks in expected.masks.items():
        equal = sum(int((found.masks[name][matrix] == mask).sum()) for matrix, mask in masks.items())
        figures[f"equal_masks.{name}"] = equal / sum(mask.numel() for mask in masks.values())
    return figures


def beyond(figures: dict[str, float], dtype: torch.dtype) -> list[str]:
    """The figures that are worse than rounding explains."""
    bad = []
    for name, value in figures.items():
        if name.startswith("equal_masks"):
            bad += [name] * (value < EQUAL_MASKS[dtype])
        else:
            tolerance = SCORE_TOLERANCE if name.endswith("scores") else MOMENT_TOLERANCE
            bad += [name] * (not value <= tolerance[dtype])
    return bad


def show_speed(bench: Bench, rows: Rows, repeats: int, report: Report) -> None:
    """Scoring and two saliencies beside the device's own matrix rate."""
    scoring = partial(bench.scorer.log_probabilities, rows.texts)
    stages: dict[str, tuple[Callable[[], object], float]] = {
        "scoring": (scoring, count_scoring(bench, rows).forward(bench))
    }
    for name in ("true", "all"):
        operations = saliency_operations(bench, rows.texts, *_saliency(bench, rows, name))
        stages[name] = (partial(moments_of, bench, rows, name), operations)
    for name, (work, operations) in stages.items():
        work()  # Kernels are chosen and memory is laid out on the first pass.
        runs = []
        for _ in range(repeats):
            _, run = measure(f"{name}.{bench.name}", work, operations, bench.matrix_rate())
            report.show(f"{name}.{bench.name}", run)
            runs.append(run)
        report.record(figures_of(f"{name}.{bench.name}", runs))


def open_on(options: argparse.Namespace, device: str) -> LoadedModel:
    """The model with all its weights on a device, or spread over all of them."""
    return load_model(options.model, gguf_file=options.gguf_file, dtype=options.dtype, device_map=device)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, measure, print; exit 1 where the device differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rows=32)
    add_datasets(parser)
    parser.add_argument("--device", default="cuda:0", help="device, or auto for all there are (default: cuda:0)")
    options = parser.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    report = Report(options.json)
    device = open_on(options, options.device)
    benches = [open_bench(device, dataset, options.split) for dataset in options.datasets]
    rows = benches[0].first(options.rows)
    report.begin(f"{options.rows} rows, {device.model.dtype}, {options.device}")
    for bench in benches:
        show_speed(bench, bench.first(options.rows), options.repeats, report)
    expected = outcome_of(open_bench(open_on(options, "cpu"), options.datasets[0], options.split), rows)
    figures = differences(outcome_of(benches[0], rows), expected)
    report.conclude(figures)
    bad = beyond(figures, device.model.dtype)
    if bad:
        sys.exit(f"Expected {options.device} to agree with the CPU, but these differ by more than rounding: {bad}.")


if __name__ == "__main__":
    main()
