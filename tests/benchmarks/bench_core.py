"""Speed and memory of scoring, saliency and pruning, beside the machine's own matrix-multiply rate.

    python tests/benchmarks/bench_core.py --model MODEL --dataset DATASET --task dbpedia_14

Nothing here asserts a time; run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from common import (
    Bench,
    Report,
    Rows,
    Run,
    add_arguments,
    count_labelled,
    count_scoring,
    count_targets,
    figures_of,
    kept_weights,
    measure,
    open_bench,
    open_model,
    saliency_operations,
    sparsegpt_operations,
    wanda_operations,
)

from optimum_cpp.pruning import prune_model
from optimum_cpp.saliency import EXACT, gradient_moments, true_labels
from optimum_cpp.scoring import ScoreTransform


def count_work(bench: Bench, rows: Rows) -> tuple[dict[str, int], dict[str, float]]:
    """Tokens and counted operations of each stage."""
    scoring, labelled = count_scoring(bench, rows), count_labelled(bench, rows)
    targets = true_labels(rows.labels)
    read = count_targets(bench, rows.texts, targets)
    tokens = {"scoring": scoring.tokens, "saliency": read, "wanda": labelled, "sparsegpt": labelled}
    operations = {
        "scoring": scoring.forward(bench),
        "saliency": saliency_operations(bench, rows.texts, targets, EXACT),
        "wanda": wanda_operations(bench, labelled),
        "sparsegpt": sparsegpt_operations(bench, rows, labelled),
    }
    return tokens, operations


def stages_of(bench: Bench, rows: Rows) -> dict[str, Callable[[], object]]:
    """What is measured."""
    scorer, budget = bench.scorer, bench.scorer.batch_tokens

    def saliency() -> object:
        targets = true_labels(rows.labels)
        return gradient_moments(
            scorer, bench.matrices, rows.texts, targets, score=ScoreTransform("nll"), batch_tokens=budget
        )

    def prune(pruner: str) -> object:
        return prune_model(
            scorer, bench.blocks, rows.texts, rows.labels, base_pruner=pruner, sparsity="0.5", lam="0",
            saliency=None, batch_tokens=budget, seed=0,
        )  # fmt: skip

    return {
        "scoring": lambda: scorer.log_probabilities(rows.texts),
        "saliency": saliency,
        "wanda": lambda: prune("wanda"),
        "sparsegpt": lambda: prune("sparsegpt"),
    }


def run_stage(
    bench: Bench, name: str, work: Callable[[], object], operations: float, repeats: int, report: Report
) -> list[Run]:
    """Each run starts from the dense weights."""
    runs = []
    with kept_weights(bench) as restore:
        for _ in range(repeats):
            _, run = measure(name, work, operations, bench.matrix_rate())
            report.show(name, run)
            runs.append(run)
            restore()
    return runs


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rows=32)
    parser.add_argument("--dataset", required=True, help="Hub id, local folder or file")
    parser.add_argument("--task", help="preset of prompt and verbalizers")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse_arguments(arguments)
    report = Report(options.json)
    bench = open_bench(open_model(options), options.dataset, options.split, options.task)
    rows = bench.first(options.rows)
    tokens, operations = count_work(bench, rows)
    report.begin(f"{options.rows} rows, {bench.scorer.model.dtype}")
    report.record({"rows": float(options.rows)})
    for name, work in stages_of(bench, rows).items():
        runs = run_stage(bench, name, work, operations[name], options.repeats, report)
        figures = figures_of(name, runs)
        speed = {
            f"tokens.{name}": float(tokens[name]),
            f"tokens_per_second.{name}": tokens[name] / figures[f"seconds.{name}"],
        }
        report.record(figures | speed)
        report.conclude({key: (figures | speed)[key] for key in (f"matrix_rate_fraction.{name}", *list(speed)[1:])})


if __name__ == "__main__":
    main()
