"""Speed and memory of scoring, saliency and pruning, beside the machine's own matrix-multiply rate.

    python tests/benchmarks/bench_core.py --model MODEL --dataset DATASET --task dbpedia_14

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from optimum_cpp.blocks import Block, capture_block_calls, find_blocks, matrices_of
from optimum_cpp.configuration import DTYPES, CPPConfig
from optimum_cpp.data import Pool, encoder_task, load_pool, resolve_task
from optimum_cpp.loading import LoadedModel, load_model, make_scorer
from optimum_cpp.pruning import prune_model
from optimum_cpp.pruning.snapshot import restore_weights, save_weights
from optimum_cpp.pruning.statistics import collect_statistics
from optimum_cpp.saliency import squared_gradients
from optimum_cpp.scoring import LabelScorer, VerbalizerScorer
from optimum_cpp.stages import Stage, StageClock

GIGA = 1e9


@dataclass(frozen=True)
class Work:
    """Counted operations of each stage on the given rows."""

    tokens: dict[str, int]
    operations: dict[str, float]


@dataclass(frozen=True)
class MatrixRate:
    """The machine's matrix-multiply rate on the model's shapes, measured again around every run.

    Attributes:
        shapes: distinct (d_out, d_in) of the model's matrices.
        dtype: of the run.
        device: of the model.
        tokens: rows of the other factor.
    """

    shapes: list[tuple[int, int]]
    dtype: torch.dtype
    device: torch.device
    tokens: int

    def measure(self, repeats: int = 7) -> float:
        """Operations per second of X W^T: the median of the repeats of the fastest shape."""
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
        return max(rates)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def count_work(scorer: LabelScorer, blocks: tuple[Block, ...], texts: list[str], labels: list[int]) -> Work:
    """Operations that the dense matrices need on real tokens, without padding."""
    matrices = matrices_of(blocks)
    per_token = 2 * sum(matrix.weight.numel() for matrix in matrices)
    labelled = sum(int(b.real.sum()) for b in scorer.labelled_batches(texts, labels, scorer.batch_tokens))
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
    repeats: int,
    rate: MatrixRate,
) -> Iterator[tuple[Stage, float]]:
    """Each stage `repeats` times, with the mean of the matrix rates just before and just after it."""
    matrices = matrices_of(blocks)
    budget = scorer.batch_tokens

    def prune(pruner: str) -> None:
        prune_model(
            scorer, blocks, texts, labels, base_pruner=pruner, sparsity="0.5", lam="0",
            squared_gradients=None, batch_tokens=budget, seed=0,
        )  # fmt: skip

    stages: dict[str, Callable[[], object]] = {
        "scoring": lambda: scorer.log_probabilities(texts),
        "saliency": lambda: squared_gradients(scorer, matrices, texts, labels, batch_tokens=budget),
        "wanda": lambda: prune("wanda"),
        "sparsegpt": lambda: prune("sparsegpt"),
    }
    with tempfile.TemporaryDirectory() as folder:
        dense = Path(folder) / "dense.safetensors"
        save_weights(matrices, dense)
        for name, work in stages.items():
            before = rate.measure()
            for _ in range(repeats):
                clock = StageClock()
                with clock.stage(name):
                    work()
                after = rate.measure()
                yield clock.stages[0], (before + after) / 2
                before = after
            restore_weights(matrices, dense)


def figures_of(runs: list[tuple[Stage, float]], work: Work) -> dict[str, float]:
    """Medians over the runs of one stage, under stable keys; the fraction is a median of ratios."""
    name = runs[0][0].name
    seconds = statistics.median(stage.seconds for stage, _ in runs)
    operations, tokens = work.operations[name], work.tokens[name]
    return {
        f"seconds.{name}": seconds,
        f"tokens.{name}": float(tokens),
        f"tokens_per_second.{name}": tokens / seconds,
        f"counted_gflops.{name}": operations / seconds / GIGA,
        f"matrix_rate_gflops.{name}": statistics.median(rate for _, rate in runs) / GIGA,
        f"matrix_rate_fraction.{name}": statistics.median(operations / s.seconds / rate for s, rate in runs),
        f"peak_memory_mib.{name}": max(stage.peak_memory_mib for stage, _ in runs),
    }


HEADER = (
    f"{'stage':<12}{'seconds':>9}{'tokens':>9}{'tokens/s':>10}{'GFLOP/s':>9}{'matrix rate':>13}{'fraction':>10}"
    f"{'peak MiB':>10}"
)


def line_of(name: str, figures: dict[str, float]) -> str:
    """One stage for a reader."""
    return (
        f"{name:<12}{figures[f'seconds.{name}']:>9.2f}{figures[f'tokens.{name}']:>9.0f}"
        f"{figures[f'tokens_per_second.{name}']:>10.0f}{figures[f'counted_gflops.{name}']:>9.0f}"
        f"{figures[f'matrix_rate_gflops.{name}']:>13.0f}{figures[f'matrix_rate_fraction.{name}']:>10.1%}"
        f"{figures[f'peak_memory_mib.{name}']:>10.0f}"
    )


def parse_arguments() -> argparse.Namespace:
    """The command line; names as on `optimum-cli cpp prune`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="Hub id or folder")
    parser.add_argument("--gguf_file", help="GGUF file inside the model folder")
    parser.add_argument("--dataset", required=True, help="Hub id, local folder or file")
    parser.add_argument("--split", nargs="*", default=[], help="splits to pool (default: all)")
    parser.add_argument("--task", help="preset of prompt and verbalizers")
    parser.add_argument("--rows", type=int, default=32, help="rows of every stage")
    parser.add_argument("--repeats", type=int, default=3, help="runs of every stage; medians are reported")
    parser.add_argument("--dtype", default="auto", choices=DTYPES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    return parser.parse_args()


def load_scorer(options: argparse.Namespace, loaded: LoadedModel) -> tuple[LabelScorer, Pool]:
    """The scorer and the pool of rows."""
    pool = load_pool(options.dataset, split=tuple(options.split))
    if loaded.kind == "encoder":
        task, _ = encoder_task(label_names=pool.label_names, prompt=None)
    else:
        task, _ = resolve_task(
            task=options.task, dataset=options.dataset, label_names=pool.label_names, prompt=None, verbalizers=None
        )
    tokens = CPPConfig().max_text_tokens
    return make_scorer(loaded, task, max_text_tokens=tokens, length_normalize=False, batch_tokens=None), pool


def main() -> None:
    """Measure and print."""
    options = parse_arguments()
    loaded = load_model(options.model, gguf_file=options.gguf_file, dtype=options.dtype)
    scorer, pool = load_scorer(options, loaded)
    blocks = find_blocks(loaded.model)
    texts, labels = list(pool.texts[: options.rows]), list(pool.labels[: options.rows])
    work = count_work(scorer, blocks, texts, labels)
    shapes = sorted({tuple(matrix.weight.shape) for matrix in matrices_of(blocks)})
    rate = MatrixRate(shapes, loaded.model.dtype, loaded.model.device, tokens=2048)  # type: ignore[arg-type]
    print(f"{len(texts)} rows, {loaded.model.dtype}, {torch.get_num_threads()} threads\n{HEADER}", flush=True)
    figures = {"rows": float(len(texts)), "threads": float(torch.get_num_threads())}
    runs: list[tuple[Stage, float]] = []
    for run in run_stages(scorer, blocks, texts, labels, options.repeats, rate):
        runs.append(run)
        if len(runs) == options.repeats:
            figures |= figures_of(runs, work)
            print(line_of(run[0].name, figures), flush=True)
            runs.clear()
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
