"""Saliency of the true label, of labels near the threshold and of all labels, exact and by random signs.

    python tests/benchmarks/bench_saliency.py --model MODEL --datasets DATASET [DATASET ...]

On the first data set every saliency runs, and whole prunes at lambda 0.3 and sparsity 0.5, all on the
same rows; on the others, `true` and `all` by random signs. `all` exactly takes a backward pass for each
label, so it runs on --exact_rows beside `true` on the same rows. The band of `threshold` comes from
--val_rows other rows, and finding it is no part of a saliency's time; what a whole prune needs beside
it, the dense scores of its own rows, is a stage of its own (`prune_scores`).

Keys: X_over_true is the time of saliency X / that of `true`; all_rademacher_counted_ratio the same of
counted work; cpp_X_over_X the time of the saliency and the prune at lambda 0.3 / that of the base prune
alone. Ratios are taken within each repeat, and the median over the repeats is kept.

--quality_rows N compares, on two disjoint halves A and B of N rows each, which weights CPP rescues (it
keeps them, Wanda alone prunes them) by `all`: rescued_jaccard.sketch is |both| / |either| of the sketch
on A and the exact value on B, rescued_jaccard.halves that of the exact values on A and on B, the most
that a sketch could reach. Every mask uses the activations of half A, so only saliencies differ at
first; pruning is sequential as in a real run, so later blocks also see what earlier masks did.

Nothing here asserts a time; run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch
from common import (
    Bench,
    MatrixRate,
    Report,
    Rows,
    Run,
    add_arguments,
    add_datasets,
    count_labelled,
    count_scoring,
    kept_weights,
    measure,
    median_ratio,
    open_bench,
    open_model,
    saliency_operations,
    sparsegpt_operations,
    wanda_operations,
)

from optimum_cpp.pruning import prune_model
from optimum_cpp.saliency import (
    EXACT,
    Estimator,
    Saliency,
    Targets,
    all_labels,
    gradient_moments,
    near_threshold,
    threshold_band,
    true_labels,
)
from optimum_cpp.scoring import ScoreTransform

LAMBDA, SPARSITY, ALPHA = "0.3", "0.5", "0.1"
RADEMACHER = Estimator(num_sketches=1)
SCORE = ScoreTransform("nll")
Tensors = dict[str, torch.Tensor]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Task:
    """One saliency to measure.

    Attributes:
        texts: rows whose scores are differentiated.
        targets: with which labels.
        estimator: exact or by random signs.
    """

    texts: list[str]
    targets: Targets
    estimator: Estimator

    def moments(self, bench: Bench) -> Tensors:
        """The saliency's mean squared gradients."""
        return gradient_moments(
            bench.scorer,
            bench.matrices,
            self.texts,
            self.targets,
            score=SCORE,
            estimator=self.estimator,
            batch_tokens=bench.scorer.batch_tokens,
        )

    def operations(self, bench: Bench) -> float:
        """Its counted work."""
        return saliency_operations(bench, self.texts, self.targets, self.estimator)


def prune(bench: Bench, rows: Rows, pruner: str, moments: Mapping[str, torch.Tensor] | None) -> None:
    """By the base pruner alone, or with a saliency at lambda 0.3."""
    prune_model(
        bench.scorer,
        bench.blocks,
        rows.texts,
        rows.labels,
        base_pruner=pruner,
        sparsity=SPARSITY,
        lam="0" if moments is None else LAMBDA,
        saliency=None if moments is None else Saliency(moments, "square"),
        batch_tokens=bench.scorer.batch_tokens,
        seed=0,
    )


# The first data set.


@dataclass
class Repeat:
    """One pass through the stages; each is shown when it ends.

    Attributes:
        operations: counted work by stage.
        rate: of the machine.
        report: where lines go.
        runs: by stage.
    """

    operations: Mapping[str, float]
    rate: MatrixRate
    report: Report
    runs: dict[str, Run] = field(default_factory=dict)

    def run(self, name: str, work: Callable[[], Result]) -> Result:
        """Measure one stage."""
        result, self.runs[name] = measure(name, work, self.operations[name], self.rate)
        self.report.show(name, self.runs[name])
        return result


@dataclass(frozen=True)
class Plan:
    """What runs on the first data set.

    Attributes:
        bench: model and task.
        rows: of all stages but those on few rows.
        tasks: saliencies by stage.
    """

    bench: Bench
    rows: Rows
    tasks: dict[str, Task]

    def operations(self) -> dict[str, float]:
        """Counted work by stage."""
        tokens = count_labelled(self.bench, self.rows)
        wanda = wanda_operations(self.bench, tokens)
        sparsegpt = sparsegpt_operations(self.bench, self.rows, tokens)
        saliencies = {name: task.operations(self.bench) for name, task in self.tasks.items()}
        return saliencies | {
            "wanda": wanda,
            "sparsegpt": sparsegpt,
            "cpp_wanda": wanda,
            "cpp_sparsegpt": sparsegpt,
            "prune_scores": count_scoring(self.bench, self.rows).forward(self.bench),
            "cpp_threshold_rademacher_wanda": wanda,
        }


def plan_first(bench: Bench, options: argparse.Namespace, report: Report) -> Plan:
    """Targets of every saliency; the dense scores that `threshold` needs are timed apart."""
    rows, few = bench.first(options.rows), bench.first(options.exact_rows)
    val = bench.first(options.val_rows, start=options.rows)
    log_p, run = measure(
        "val_scores", lambda: bench.scorer.log_probabilities(val.texts), count_scoring(bench, val).forward(bench),
        bench.matrix_rate(),
    )  # fmt: skip
    report.show("val_scores", run)
    band = threshold_band(SCORE.nonconformity(log_p), val.labels, ALPHA)
    near = near_threshold(SCORE.nonconformity(bench.scorer.log_probabilities(rows.texts)), band)
    every = len(bench.scorer.labels)
    report.conclude(
        {"seconds.val_scores": run.seconds, "labels_per_example.threshold": sum(map(len, near)) / len(near)}
    )
    # Saliencies that are compared stand side by side, since the machine's rate drifts.
    tasks = {
        f"true_few.{bench.name}": Task(few.texts, true_labels(few.labels), EXACT),
        f"all_exact.{bench.name}": Task(few.texts, all_labels(len(few.texts), every), EXACT),
        f"all_rademacher.{bench.name}": Task(rows.texts, all_labels(len(rows.texts), every), RADEMACHER),
        "threshold": Task(rows.texts, near, EXACT),
        "true": Task(rows.texts, true_labels(rows.labels), EXACT),
        "threshold_rademacher": Task(rows.texts, near, RADEMACHER),
    }
    return Plan(bench, rows, tasks)


def run_first(plan: Plan, repeat: Repeat, restore: Callable[[], None]) -> dict[str, Run]:
    """Every stage once, in an order that keeps at most one saliency in memory; the dense weights come back."""
    bench, rows = plan.bench, plan.rows

    def saliency(name: str) -> Tensors:
        return repeat.run(name, lambda: plan.tasks[name].moments(bench))

    def pruned(name: str, pruner: str, moments: Tensors | None) -> None:
        repeat.run(name, lambda: prune(bench, rows, pruner, moments))
        restore()

    kept = ("true", "threshold_rademacher")
    for name in [name for name in plan.tasks if name not in kept]:
        saliency(name)
    moments = saliency("true")
    pruned("cpp_wanda", "wanda", moments)
    pruned("cpp_sparsegpt", "sparsegpt", moments)
    del moments
    pruned("sparsegpt", "sparsegpt", None)
    pruned("wanda", "wanda", None)
    repeat.run("prune_scores", lambda: bench.scorer.log_probabilities(rows.texts))
    moments = saliency("threshold_rademacher")
    pruned("cpp_threshold_rademacher_wanda", "wanda", moments)
    return repeat.runs


def conclude_first(plan: Plan, repeats: list[dict[str, Run]], report: Report) -> None:
    """The ratios of the first data set."""
    report.conclude_stages(repeats)
    name = plan.bench.name
    every, few = f"all_rademacher.{name}", f"true_few.{name}"
    counted = repeats[0][every].operations / repeats[0]["true"].operations
    with_threshold = ["prune_scores", "threshold_rademacher", "cpp_threshold_rademacher_wanda"]
    stages = ("true", "wanda", "cpp_wanda", "sparsegpt", "cpp_sparsegpt", *with_threshold)
    fractions = [f"matrix_rate_fraction.{stage}" for stage in stages]
    report.conclude(
        {key: report.figures[key] for key in fractions}
        | {
            "threshold_over_true": median_ratio(repeats, ["threshold"], ["true"]),
            "threshold_rademacher_over_true": median_ratio(repeats, ["threshold_rademacher"], ["true"]),
            f"all_rademacher_over_true.{name}": median_ratio(repeats, [every], ["true"]),
            f"all_rademacher_counted_ratio.{name}": counted,
            f"all_exact_over_true.{name}": median_ratio(repeats, [f"all_exact.{name}"], [few]),
            "cpp_wanda_over_wanda": median_ratio(repeats, ["true", "cpp_wanda"], ["wanda"]),
            "cpp_threshold_rademacher_wanda_over_wanda": median_ratio(repeats, with_threshold, ["wanda"]),
            "cpp_sparsegpt_over_sparsegpt": median_ratio(repeats, ["true", "cpp_sparsegpt"], ["sparsegpt"]),
        }
    )


def measure_first(bench: Bench, options: argparse.Namespace, report: Report) -> None:
    """All saliencies and whole prunes."""
    report.begin(_heading(bench, options))
    plan = plan_first(bench, options, report)
    operations, rate = plan.operations(), bench.matrix_rate()
    with kept_weights(bench) as restore:
        repeats = [run_first(plan, Repeat(operations, rate, report), restore) for _ in range(options.repeats)]
    conclude_first(plan, repeats, report)


# The other data sets.


def measure_other(bench: Bench, options: argparse.Namespace, report: Report) -> None:
    """`true`, and `all` by random signs."""
    report.begin(_heading(bench, options))
    rows = bench.first(options.rows)
    true, every = f"true.{bench.name}", f"all_rademacher.{bench.name}"
    tasks = {
        true: Task(rows.texts, true_labels(rows.labels), EXACT),
        every: Task(rows.texts, all_labels(len(rows.texts), len(bench.scorer.labels)), RADEMACHER),
    }
    operations, rate = {name: task.operations(bench) for name, task in tasks.items()}, bench.matrix_rate()
    repeats = []
    for _ in range(options.repeats):
        repeat = Repeat(operations, rate, report)
        for name, task in tasks.items():
            repeat.run(name, partial(task.moments, bench))
        repeats.append(repeat.runs)
    report.conclude_stages(repeats)
    report.conclude(
        {
            f"matrix_rate_fraction.{every}": report.figures[f"matrix_rate_fraction.{every}"],
            f"all_rademacher_over_true.{bench.name}": median_ratio(repeats, [every], [true]),
            f"all_rademacher_counted_ratio.{bench.name}": operations[every] / operations[true],
        }
    )


def _heading(bench: Bench, options: argparse.Namespace) -> str:
    return f"{bench.name}: {len(bench.scorer.labels)} labels, {options.rows} rows, {bench.scorer.model.dtype}"


# Which weights a sketch rescues.


def measure_quality(bench: Bench, rows: int, report: Report) -> None:
    """Agreement of the rescued weights between the sketch and exact values, and between halves."""
    half, other = bench.first(rows), bench.first(rows, start=rows)
    targets = all_labels(rows, len(bench.scorer.labels))
    with kept_weights(bench) as restore:

        def masks(moments: Tensors | None) -> Tensors:
            prune(bench, half, "wanda", moments)
            zeros = {matrix.name: matrix.weight == 0 for matrix in bench.matrices}
            restore()
            return zeros

        base = masks(None)

        def rescued(texts: list[str], estimator: Estimator) -> Tensors:
            zeros = masks(Task(texts, targets, estimator).moments(bench))
            return {name: base[name] & ~zeros[name] for name in base}

        exact_other = rescued(other.texts, EXACT)
        figures = {
            "rescued_jaccard.sketch": jaccard(rescued(half.texts, RADEMACHER), exact_other),
            "rescued_jaccard.halves": jaccard(rescued(half.texts, EXACT), exact_other),
        }
    report.conclude(figures | {"quality_rows": float(rows)})


def jaccard(one: Tensors, other: Tensors) -> float:
    """|both| / |either| over all matrices; 1 where both are empty."""
    both = sum(int((one[name] & other[name]).sum()) for name in one)
    either = sum(int((one[name] | other[name]).sum()) for name in one)
    return both / either if either else 1.0


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, rows=32)
    add_datasets(parser)
    parser.add_argument("--exact_rows", type=int, default=2, help="rows of `all` exactly (default: 2)")
    parser.add_argument("--val_rows", type=int, default=16, help="other rows, for the band (default: 16)")
    parser.add_argument("--quality_rows", type=int, default=0, help="rows of each half (default: 0, skipped)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = parse_arguments(arguments)
    report = Report(options.json)
    report.record({name: float(getattr(options, name)) for name in ("rows", "exact_rows", "val_rows")})
    loaded = open_model(options)
    first, *others = options.datasets
    bench = open_bench(loaded, first, options.split)
    measure_first(bench, options, report)
    if options.quality_rows:
        measure_quality(bench, options.quality_rows, report)
    for dataset in others:
        measure_other(open_bench(loaded, dataset, options.split), options, report)


if __name__ == "__main__":
    main()
