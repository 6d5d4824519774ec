"""What the benchmarks share: model, rows and scorer, the matrix rate, counted work, and the report.

Counted work is what dense matrices must do on real tokens: 2 * P_blocks * tokens + 2 * P_head * scored
positions for a forward pass, and twice that again for every backward pass. Padding, attention, norms and
the statistics of a pruner are not counted, so they lower a stage's fraction of the matrix rate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch

from optimum_cpp.blocks import Block, Matrix, capture_block_calls, find_blocks, matrices_of
from optimum_cpp.configuration import DTYPES, CPPConfig
from optimum_cpp.data import Pool, encoder_task, load_pool, resolve_task
from optimum_cpp.loading import LoadedModel, load_model, make_scorer
from optimum_cpp.pruning.snapshot import restore_weights, save_weights
from optimum_cpp.pruning.statistics import collect_statistics
from optimum_cpp.saliency import Estimator, Targets
from optimum_cpp.scoring import LabelScorer, VerbalizerScorer
from optimum_cpp.scoring.packing import PackedBatch
from optimum_cpp.stages import Stage, StageClock

GIGA = 1e9
Result = TypeVar("Result")


# Arguments, model and rows.


def add_arguments(parser: argparse.ArgumentParser, *, rows: int) -> None:
    """What every benchmark is told; names as on `optimum-cli cpp prune`."""
    parser.add_argument("-m", "--model", required=True, help="Hub id or folder")
    parser.add_argument("--gguf_file", help="GGUF file inside the model folder")
    parser.add_argument("--dtype", default="auto", choices=DTYPES)
    parser.add_argument(
        "--split",
        nargs="*",
        default=[],
        help="splits to take rows from, where a data set has them (default: all)",
    )
    parser.add_argument("--rows", type=int, default=rows, help=f"rows of every stage (default: {rows})")
    parser.add_argument("--repeats", type=int, default=3, help="runs of every stage; medians are reported (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")


def add_datasets(parser: argparse.ArgumentParser) -> None:
    """One or several data sets, each with the task that it is named after."""
    parser.add_argument(
        "--datasets",
        nargs="+",
        required=True,
        help="Hub ids, local folders or files; the last part of each name selects the preset task",
    )


def open_model(options: argparse.Namespace) -> LoadedModel:
    """The model that the arguments name."""
    return load_model(options.model, gguf_file=options.gguf_file, dtype=options.dtype)


@dataclass(frozen=True)
class Rows:
    """Texts and their label indices."""

    texts: list[str]
    labels: list[int]

    def part(self, start: int, stop: int) -> Rows:
        """Some of the rows."""
        return Rows(self.texts[start:stop], self.labels[start:stop])


@dataclass(frozen=True)
class Bench:
    """A model that scores the labels of one data set, and its rows in the data's order.

    Attributes:
        name: last part of the data set's name, as it stands in the figures' keys.
        scorer: of the data set's task.
        blocks: of the model.
        rows: all rows of the chosen splits.
    """

    name: str
    scorer: LabelScorer
    blocks: tuple[Block, ...]
    rows: Rows

    @property
    def matrices(self) -> list[Matrix]:
        """The prunable matrices."""
        return matrices_of(self.blocks)

    @property
    def per_token(self) -> int:
        """Operations of the blocks' matrices on one token."""
        return 2 * sum(matrix.weight.numel() for matrix in self.matrices)

    @property
    def per_position(self) -> int:
        """Operations of the vocabulary head at one position; a classification head is too small to count."""
        model: Any = self.scorer.model
        head = model.get_output_embeddings() if self.scorer.kind == "decoder" else None
        return 0 if head is None else 2 * head.weight.numel()

    def matrix_rate(self) -> MatrixRate:
        """For matrices of the model's shapes."""
        shapes = sorted({(m.weight.shape[0], m.weight.shape[1]) for m in self.matrices})
        return MatrixRate(shapes, self.scorer.model.dtype, self.scorer.model.device)

    def first(self, count: int, start: int = 0) -> Rows:
        """So many rows from `start` on; fewer would make the figures' names untrue."""
        if start + count > len(self.rows.texts):
            raise SystemExit(
                f"Expected {self.name} to have {start + count} rows in these splits, but it has {len(self.rows.texts)}."
            )
        return self.rows.part(start, start + count)


def open_bench(loaded: LoadedModel, dataset: str, split: Sequence[str], task: str | None = None) -> Bench:
    """The scorer of a data set's task, which is the preset that the data set is named after unless given."""
    pool = load_pool(dataset)
    if loaded.kind == "encoder":
        chosen, _ = encoder_task(label_names=pool.label_names, prompt=None)
    else:
        chosen, _ = resolve_task(
            task=task, dataset=dataset, label_names=pool.label_names, prompt=None, verbalizers=None
        )
    tokens = CPPConfig().max_text_tokens
    scorer = make_scorer(loaded, chosen, max_text_tokens=tokens, length_normalize=False, batch_tokens=None)
    name = Path(dataset.rstrip("/\\")).stem
    return Bench(name, scorer, find_blocks(loaded.model), _rows_of(pool, split))


def _rows_of(pool: Pool, split: Sequence[str]) -> Rows:
    """The rows of those of the splits that the data set has; data sets name theirs differently."""
    chosen = [row for row, name in enumerate(pool.row_splits) if not split or name in split]
    if not chosen:
        raise SystemExit(
            f"Expected {pool.source.id} to have a split named {' or '.join(split)}, "
            f"but its splits are {', '.join(pool.source.splits)}."
        )
    return Rows([pool.texts[row] for row in chosen], [pool.labels[row] for row in chosen])


@contextmanager
def kept_weights(bench: Bench) -> Iterator[Callable[[], None]]:
    """A function that puts the dense weights back; they wait on disk, to leave the peak memory alone."""
    with TemporaryDirectory() as folder:
        dense = Path(folder) / "dense.safetensors"
        save_weights(bench.matrices, dense)
        yield lambda: restore_weights(bench.matrices, dense)


# Time, memory and the machine's own rate.


@dataclass(frozen=True)
class MatrixRate:
    """The machine's matrix-multiply rate on the model's shapes.

    Attributes:
        shapes: distinct (d_out, d_in) of the model's matrices.
        dtype: of the run.
        device: of the model.
        tokens: rows of the other factor.
    """

    shapes: list[tuple[int, int]]
    dtype: torch.dtype
    device: torch.device
    tokens: int = 2048

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
                self.synchronize()
                seconds.append(time.perf_counter() - start)
            rates.append(2 * self.tokens * d_out * d_in / statistics.median(seconds))
        return max(rates)

    def synchronize(self) -> None:
        """Wait for an accelerator that works on its own."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class Run:
    """One run of a stage.

    Attributes:
        stage: its time and peak memory.
        rate: mean of the matrix rates just before and just after it, in operations per second.
        operations: its counted work.
    """

    stage: Stage
    rate: float
    operations: float

    @property
    def seconds(self) -> float:
        """Wall-clock time."""
        return self.stage.seconds

    @property
    def fraction(self) -> float:
        """Share of the matrix rate that the counted work reached."""
        return self.operations / self.seconds / self.rate


def measure(name: str, work: Callable[[], Result], operations: float, rate: MatrixRate) -> tuple[Result, Run]:
    """Run a stage between two measurements of the matrix rate, which drifts on a shared machine."""
    before = rate.measure()
    clock = StageClock()
    with clock.stage(name):
        result = work()
        rate.synchronize()
    return result, Run(clock.stages[0], (before + rate.measure()) / 2, operations)


Repeats = Sequence[dict[str, Run]]


def median_ratio(repeats: Repeats, above: Sequence[str], below: Sequence[str]) -> float:
    """Median over the repeats of one sum of stages' times over another; both come from the same repeat."""
    return statistics.median(
        sum(runs[name].seconds for name in above) / sum(runs[name].seconds for name in below) for runs in repeats
    )


def figures_of(name: str, runs: Sequence[Run]) -> dict[str, float]:
    """Medians over the runs of one stage, under stable keys; the fraction is a median of ratios."""
    return {
        f"seconds.{name}": statistics.median(run.seconds for run in runs),
        f"counted_gflops.{name}": statistics.median(run.operations / run.seconds for run in runs) / GIGA,
        f"matrix_rate_gflops.{name}": statistics.median(run.rate for run in runs) / GIGA,
        f"matrix_rate_fraction.{name}": statistics.median(run.fraction for run in runs),
        f"peak_memory_mib.{name}": max(run.stage.peak_memory_mib for run in runs),
    }


@dataclass
class Report:
    """Lines for a reader as they come, and the figures in a file that is up to date after each of them.

    Attributes:
        path: of the file, or None.
        figures: values under stable keys.
    """

    path: Path | None
    figures: dict[str, float] = field(default_factory=dict)

    def begin(self, what: str) -> None:
        """The heading of the lines of runs."""
        header = f"{'stage':<46}{'seconds':>9}{'GFLOP/s':>9}{'matrix rate':>13}{'fraction':>10}{'peak MiB':>10}"
        print(f"{what}, {torch.get_num_threads()} threads\n{header}", flush=True)
        self.record({"threads": float(torch.get_num_threads())})

    def show(self, name: str, run: Run) -> None:
        """The line of one run."""
        print(
            f"{name:<46}{run.seconds:>9.2f}{run.operations / run.seconds / GIGA:>9.0f}{run.rate / GIGA:>13.0f}"
            f"{run.fraction:>10.1%}{run.stage.peak_memory_mib:>10.0f}",
            flush=True,
        )

    def conclude(self, figures: dict[str, float]) -> None:
        """A line for each figure, which is also kept."""
        for key, value in figures.items():
            print(f"{key:<62}{value:>12.5g}", flush=True)
        self.record(figures)

    def conclude_stages(self, repeats: Repeats) -> None:
        """Keep the medians of every stage; their runs have been shown."""
        for name in repeats[0]:
            self.record(figures_of(name, [runs[name] for runs in repeats]))

    def record(self, figures: dict[str, float]) -> None:
        """Keep figures without a line."""
        self.figures |= figures
        if self.path is not None:
            self.path.write_text(json.dumps(self.figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")


# Counted work.


@dataclass(frozen=True)
class Count:
    """Real tokens that the blocks read, and positions at which the vocabulary head is needed."""

    tokens: int
    positions: int

    def forward(self, bench: Bench) -> float:
        """Operations of a forward pass."""
        return float(bench.per_token * self.tokens + bench.per_position * self.positions)


def count_scoring(bench: Bench, rows: Rows) -> Count:
    """Each prompt once, and the trie of all labels behind it."""
    scorer = bench.scorer
    if not isinstance(scorer, VerbalizerScorer):
        return Count(count_labelled(bench, rows), 0)
    prompts = scorer.encoder.encode(rows.texts).prompts
    nodes = len(scorer.trie.tokens)
    return Count(sum(len(prompt) + nodes for prompt in prompts), len(prompts) * scorer.trie.num_queries)


def count_labelled(bench: Bench, rows: Rows) -> int:
    """Real tokens of prompt + true label."""
    batches = bench.scorer.labelled_batches(rows.texts, rows.labels, bench.scorer.batch_tokens)
    return sum(int(batch.real.sum()) for batch in batches)


def count_targets(bench: Bench, texts: list[str], targets: Targets) -> int:
    """Real tokens that a saliency reads: prompt and labels, without tokens that are only predicted."""
    batches = bench.scorer.target_batches(texts, targets, bench.scorer.batch_tokens)
    return sum(int(batch.real.sum()) for batch in batches)


def saliency_operations(bench: Bench, texts: list[str], targets: Targets, estimator: Estimator) -> float:
    """A forward pass of every batch and its backward passes, each twice as much as the forward pass.

    By random signs there is one backward pass for each sketch. Exactly there is one for each label of a
    row; it passes through all of the row's tokens, but through the head only at that label's own.
    """
    lengths = [len(tokens) for tokens in bench.scorer.label_token_ids()]
    total = 0.0
    for batch in bench.scorer.target_batches(texts, targets, bench.scorer.batch_tokens):
        tokens = int(batch.real.sum())
        # Each token of a label is predicted at one position; behind a classification head there are none.
        own = sum(lengths[label] for labels in batch.targets for label in labels)
        positions = len(batch.inputs.queries) if isinstance(batch.inputs, PackedBatch) else own
        forward = Count(tokens, positions).forward(bench)
        if estimator.num_sketches:
            total += (1 + 2 * estimator.num_sketches) * forward
        else:  # the rows of a batch have as many labels as one another
            total += forward + 2 * Count(tokens * len(batch.targets[0]), own).forward(bench)
    return total


def wanda_operations(bench: Bench, tokens: int) -> float:
    """Every block runs for its statistics, but for its last matrix; all but the last run to feed the next."""
    sizes = [[matrix.weight.numel() for matrix in block.matrices] for block in bench.blocks]
    watched = sum(sum(block[:-1]) for block in sizes)
    fed = sum(sum(block) for block in sizes[:-1])
    return float(2 * (watched + fed) * tokens)


def sparsegpt_operations(bench: Bench, rows: Rows, tokens: int) -> float:
    """The same passes, Hessians of distinct inputs, their inverse factors, and the sweeps."""
    scorer, block = bench.scorer, bench.blocks[0]
    batch = next(iter(scorer.labelled_batches(rows.texts[:1], rows.labels[:1], 1)))
    with torch.no_grad():
        call = capture_block_calls(scorer.model, bench.blocks, batch.inputs, batch.real)
        found = collect_statistics(block, 0, [call], products=False)
    widths = {id(entry): len(entry.square_sums) for entry in found.values()}
    hessians = sum(2 * width**2 * tokens for width in widths.values())
    # Factor (1/3), invert (2/3) and factor again (1/3), 2 d^3 operations each; a sweep is d_out d_in^2.
    solves = sum(8 / 3 * d_in**3 + d_out * d_in**2 for d_out, d_in in (m.weight.shape for m in block.matrices))
    return wanda_operations(bench, tokens) + len(bench.blocks) * (hessians + solves)
