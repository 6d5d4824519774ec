"""Speed and memory of scoring, saliency and pruning, beside the machine's own matrix-multiply rate.

    python tests/benchmarks/bench_core.py --model MODEL --dataset DATASET --task dbpedia_14 --rows 64

Counted work is what dense matrices must do on real tokens: 2 * P_blocks * tokens + 2 * P_head * scored
positions for a forward pass, three times that with a backward pass. Padding, attention, norms and the
statistics of a pruner are not counted, so they lower a stage's fraction of the matrix rate. Nothing
here asserts a time; run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from optimum_cpp.algorithm import SALIENCY_BATCH_DIVISOR
from optimum_cpp.configuration import DTYPES, CPPConfig
from optimum_cpp.data import encoder_task, load_pool, resolve_task
from optimum_cpp.loading import LoadedModel, load_model, make_scorer
from optimum_cpp.pruning import Block, find_blocks, matrices_of, prune_model
from optimum_cpp.pruning.blocks import capture_block_calls
from optimum_cpp.pruning.snapshot import restore_weights, save_weights
from optimum_cpp.pruning.statistics import collect_statistics
from optimum_cpp.saliency import squared_gradients
from optimum_cpp.scoring import LabelScorer, VerbalizerScorer
from optimum_cpp.stages import StageClock

GIGA = 1e9


@dataclass(frozen=True)
class Work:
    """Counted operations of each stage on the given rows."""

    tokens: dict[str, int]
    operations: dict[str, float]


@dataclass
class MatrixRate:
    """The machine's matrix-multiply rate, measured again between the stages.

    Attributes:
        shapes: distinct (d_out, d_in) of the model's matrices.
        dtype: of the run.
        device: of the model.
        samples: operations per second of the fastest shape, one for each call of `measure`.
    """

    shapes: list[tuple[int, int]]
    dtype: torch.dtype
    device: torch.device
    tokens: int
    samples: list[float] = field(default_factory=list)

    def measure(self, repeats: int = 7) -> None:
        """Time X W^T on every shape; the median of the repeats is a shape's rate, the best shape counts."""
        rates = []
        for d_out, d_in in self.shapes:
            inputs = torch.randn(self.tokens, d_in, device=self.device).to(self.dtype)
            weight = torch.randn(d_out, d_in, device=self.device).to(self.dtype)
            seconds = []
            for _ in range(repeats):
                start = time.perf_counter()
                torch.nn.functional.linear(inputs, weight)
                self._synchronize()
                seconds.append(time.perf_counter() - start)
            rates.append(2 * self.tokens * d_out * d_in / statistics.median(seconds))
        self.samples.append(max(rates))

    @property
    def median(self) -> float:
        """Median over the measurements before, between and after the stages."""
        return statistics.median(self.samples)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def count_work(
    scorer: LabelScorer, blocks: tuple[Block, ...], texts: list[str], labels: list[int], batch_tokens: int
) -> Work:
    """Operations that the dense matrices need on real tokens, without padding."""
    matrices = matrices_of(blocks)
    per_token = 2 * sum(matrix.weight.numel() for matrix in matrices)
    labelled = sum(int(b.real.sum()) for b in scorer.labelled_batches(texts, labels, batch_tokens))
    if isinstance(scorer, VerbalizerScorer):
        head: Any = scorer.model.get_output_embeddings()
        per_position = 2 * head.weight.numel()
        nodes = len(scorer.trie.tokens)
        scored = sum(len(prompt) + nodes for prompt in scorer.encoder.encode(texts).prompts)
        positions = len(texts) * scorer.trie.num_queries
        label_positions = sum(len(scorer.encoder.label_tokens[label]) for label in labels)
    else:
        per_position, scored, positions, label_positions = 0, labelled, 0, 0
    # Every block runs twice: once for its statistics, once (but for the last) to feed the next block.
    passes = per_token * labelled * (2 - 1 / len(blocks))
    return Work(
        tokens={"scoring": scored, "saliency": labelled, "wanda": labelled, "sparsegpt": labelled},
        operations={
            "scoring": per_token * scored + per_position * positions,
            "saliency": 3 * (per_token * labelled + per_position * label_positions),
            "wanda": passes,
            "sparsegpt": passes + second_order_work(scorer, blocks, texts, labels, labelled),
        },
    )


def second_order_work(
    scorer: LabelScorer, blocks: tuple[Block, ...], texts: list[str], labels: list[int], tokens: int
) -> float:
    """SparseGPT's own operations: Hessians of distinct inputs, their inverse factors, and the sweeps."""
    batch = next(iter(scorer.labelled_batches(texts[:1], labels[:1], 1)))
    with torch.no_grad():
        call = capture_block_calls(scorer.model, blocks, batch.inputs, batch.real)
        found = collect_statistics(blocks[0], 0, [call], products=False)
    widths = {id(entry): len(entry.square_sums) for entry in found.values()}
    hessians = sum(2 * width**2 * tokens for width in widths.values())
    # Factor (1/3), invert (2/3) and factor again (1/3), 2 d^3 operations each; a sweep is d_out d_in^2.
    solves = sum(
        8 / 3 * matrix.weight.shape[1] ** 3 + matrix.weight.shape[0] * matrix.weight.shape[1] ** 2
        for matrix in blocks[0].matrices
    )
    return float(len(blocks) * (hessians + solves))


def run_stages(
    scorer: LabelScorer,
    blocks: tuple[Block, ...],
    texts: list[str],
    labels: list[int],
    batch_tokens: int,
    rate: MatrixRate,
    clock: StageClock,
) -> None:
    """Run and time every stage, with the matrix rate measured before and after each."""
    matrices = matrices_of(blocks)
    rate.measure()
    with clock.stage("scoring"):
        scorer.log_probabilities(texts)
    rate.measure()
    with clock.stage("saliency"):
        squared_gradients(scorer, matrices, texts, labels, batch_tokens=max(1, batch_tokens // SALIENCY_BATCH_DIVISOR))
    rate.measure()
    with tempfile.TemporaryDirectory() as folder:
        dense = Path(folder) / "dense.safetensors"
        save_weights(matrices, dense)
        for pruner in ("wanda", "sparsegpt"):
            with clock.stage(pruner):
                prune_model(
                    scorer, blocks, texts, labels, base_pruner=pruner, sparsity="0.5", lam="0",
                    squared_gradients=None, batch_tokens=batch_tokens, seed=0,
                )  # fmt: skip
            restore_weights(matrices, dense)
            rate.measure()


def report(clock: StageClock, work: Work, rate: MatrixRate, rows: int) -> dict[str, float]:
    """The figures under stable keys."""
    figures = {
        "rows": float(rows),
        "threads": float(torch.get_num_threads()),
        "matrix_rate_gflops": rate.median / GIGA,
        "matrix_rate_gflops.low": min(rate.samples) / GIGA,
        "matrix_rate_gflops.high": max(rate.samples) / GIGA,
    }
    for stage in clock.stages:
        figures[f"seconds.{stage.name}"] = stage.seconds
        figures[f"peak_memory_mib.{stage.name}"] = stage.peak_memory_mib
        if stage.name in work.operations:
            speed = work.operations[stage.name] / stage.seconds
            figures[f"tokens.{stage.name}"] = float(work.tokens[stage.name])
            figures[f"tokens_per_second.{stage.name}"] = work.tokens[stage.name] / stage.seconds
            figures[f"counted_gflop.{stage.name}"] = work.operations[stage.name] / GIGA
            figures[f"counted_gflops.{stage.name}"] = speed / GIGA
            figures[f"matrix_rate_fraction.{stage.name}"] = speed / rate.median
    return figures


def table(figures: dict[str, float], names: list[str]) -> str:
    """The figures for a reader."""
    lines = [
        f"matrix rate {figures['matrix_rate_gflops']:.0f} GFLOP/s "
        f"({figures['matrix_rate_gflops.low']:.0f} to {figures['matrix_rate_gflops.high']:.0f} in this run), "
        f"{figures['threads']:.0f} threads, {figures['rows']:.0f} rows",
        f"{'stage':<12}{'seconds':>9}{'tokens':>9}{'tokens/s':>10}{'GFLOP/s':>9}{'of rate':>9}{'peak MiB':>10}",
    ]
    for name in names:
        line = f"{name:<12}{figures[f'seconds.{name}']:>9.2f}"
        if f"tokens.{name}" in figures:
            line += (
                f"{figures[f'tokens.{name}']:>9.0f}{figures[f'tokens_per_second.{name}']:>10.0f}"
                f"{figures[f'counted_gflops.{name}']:>9.0f}{figures[f'matrix_rate_fraction.{name}']:>9.1%}"
            )
        else:
            line += " " * 37
        lines.append(line + f"{figures[f'peak_memory_mib.{name}']:>10.0f}")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    """The command line; names as on `optimum-cli cpp prune`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="Hub id or folder")
    parser.add_argument("--gguf_file", help="GGUF file inside the model folder")
    parser.add_argument("--dataset", required=True, help="Hub id, local folder or file")
    parser.add_argument("--split", nargs="*", default=[], help="splits to pool (default: all)")
    parser.add_argument("--task", help="preset of prompt and verbalizers")
    parser.add_argument("--rows", type=int, default=64, help="rows of every stage")
    parser.add_argument("--dtype", default="auto", choices=DTYPES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    return parser.parse_args()


def load_scorer(options: argparse.Namespace, loaded: LoadedModel, batch_tokens: int) -> tuple[Any, Any]:
    """The scorer and the pool of rows."""
    pool = load_pool(options.dataset, split=tuple(options.split))
    if loaded.kind == "encoder":
        task, _ = encoder_task(label_names=pool.label_names, prompt=None)
    else:
        task, _ = resolve_task(
            task=options.task, dataset=options.dataset, label_names=pool.label_names, prompt=None, verbalizers=None
        )
    config = CPPConfig()
    scorer = make_scorer(
        loaded, task, max_text_tokens=config.max_text_tokens, length_normalize=False, batch_tokens=batch_tokens
    )
    return scorer, pool


def main() -> None:
    """Measure and print."""
    options = parse_arguments()
    batch_tokens = CPPConfig().batch_tokens
    clock = StageClock()
    with clock.stage("load"):
        loaded = load_model(options.model, gguf_file=options.gguf_file, dtype=options.dtype)
    with clock.stage("scorer"):
        scorer, pool = load_scorer(options, loaded, batch_tokens)
    blocks = find_blocks(loaded.model)
    texts, labels = list(pool.texts[: options.rows]), list(pool.labels[: options.rows])
    work = count_work(scorer, blocks, texts, labels, batch_tokens)
    shapes = sorted({tuple(matrix.weight.shape) for matrix in matrices_of(blocks)})
    rate = MatrixRate(shapes, loaded.model.dtype, loaded.model.device, tokens=2048)  # type: ignore[arg-type]
    run_stages(scorer, blocks, texts, labels, batch_tokens, rate, clock)
    figures = report(clock, work, rate, len(texts))
    print(table(figures, [stage.name for stage in clock.stages]))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
