"""Figures of a run: the distribution of set sizes, the lambda grid, and coverage in its band."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from ..results import CandidateRow, ModelRow, RunResults
from ..selection import ACCURACY_SLACK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# 8 inches shown at a card's 800 pixels make 10 points 14 pixels high; twice that many are stored for sharp screens.
WIDTH_INCHES, DPI = 8.0, 200
TEXT_POINTS = 10

# Colours that stay apart under every common colour blindness (Okabe and Ito 2008).
BLACK, ORANGE, BLUE, VERMILION, GREY = "#000000", "#E69F00", "#0072B2", "#D55E00", "#767676"
MODEL_COLOURS = {"dense": BLACK, "base": ORANGE}

LARGEST_NUMBER_OF_BINS = 24
CHARACTERS_OF_TICKS = 60
LAMBDA_MARKERS = "os^vD<>p"


def draw_figures(results: RunResults, directory: Path) -> tuple[Path, ...]:
    """Draw what the results allow.

    `set_sizes.png` and `coverage.png` need test rows, `lambda_grid.png` needs candidates on val_eval.

    Args:
        results: the numbers of a run.
        directory: an existing folder for the PNG files.

    Returns:
        Paths of the files that were written.
    """
    figures: dict[str, Figure] = {}
    if results.test:
        figures["set_sizes.png"] = set_size_figure(results.test)
    if results.validation:
        figures["lambda_grid.png"] = lambda_grid_figure(results)
    if results.test:
        figures["coverage.png"] = coverage_figure(results.test, results.alpha)
    for name, figure in figures.items():
        figure.savefig(directory / name, format="png")
    return tuple(directory / name for name in figures)


def set_size_figure(rows: Sequence[ModelRow]) -> Figure:
    """Share of test rows by the size of their prediction set, one bar for each model."""
    figure, axes = _canvas(4.0)
    largest = max(size for row in rows for size, count in enumerate(row.counts.size_histogram) if count)
    bins = _size_bins(largest)
    width = 0.84 / len(rows)
    for place, row in enumerate(rows):
        counts = row.counts
        shares = [100 * sum(counts.size_histogram[low : high + 1]) / counts.rows for low, high in bins]
        left = [bin_ - 0.42 + width * place for bin_ in range(len(bins))]
        label = f"{_model_name(row)}, mean {counts.mean_set_size:.2f}"
        axes.bar(left, shares, width, align="edge", color=_colour(row), label=label)
    names = [str(low) if low == high else f"{low}-{high}" for low, high in bins]
    ticks = range(0, len(bins), -(-len(bins) * max(map(len, names)) // CHARACTERS_OF_TICKS))
    axes.set_xticks(ticks, [names[tick] for tick in ticks])
    axes.set_xlabel("Labels in the prediction set")
    axes.set_ylabel("Share of test rows (%)")
    axes.set_title(f"Set sizes on {rows[0].counts.rows} test rows")
    axes.grid(axis="y", color="0.9")
    figure.legend(frameon=False, loc="outside lower center", ncols=len(rows))
    return figure


def lambda_grid_figure(results: RunResults) -> Figure:
    """Accuracy against mean set size on val_eval for every lambda, with the guardrail and the choice."""
    figure, axes = _canvas(4.4)
    rows = sorted(results.validation, key=lambda row: Fraction(row.lam))
    axes.plot(*_points(rows), color="0.75", linewidth=1, zorder=1)
    for place, row in enumerate(rows):
        chosen = row.lam == results.lam
        note = ", chosen" if chosen else "" if row.eligible else ", not eligible"
        axes.plot(
            *_points([row]),
            marker=LAMBDA_MARKERS[place % len(LAMBDA_MARKERS)],
            markersize=11,
            markerfacecolor=BLUE if row.eligible else "white",
            markeredgecolor="white" if row.eligible else BLUE,
            linestyle="none",
            label=f"λ = {row.lam}{note}",
        )
        if chosen:
            axes.plot(*_points([row]), marker="o", markersize=19, markerfacecolor="none", color=VERMILION, zorder=3)
    if results.dense_validation is not None:
        dense = results.dense_validation
        axes.plot(
            dense.mean_set_size, 100 * dense.accuracy, marker="*", markersize=14, color=BLACK, linestyle="none",
            label="dense",
        )  # fmt: skip
    _draw_guardrail(axes, rows)
    axes.margins(0.12, 0.15)
    axes.set_xlabel("Mean set size on val_eval (labels)")
    axes.set_ylabel("Accuracy on val_eval (%)")
    axes.set_title(f"Selection of λ on {rows[0].counts.rows} val_eval rows (better: up and left)")
    axes.grid(color="0.92")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    return figure


def coverage_figure(rows: Sequence[ModelRow], alpha: str) -> Figure:
    """Observed coverage of each model over its acceptance band, with the target 1 - alpha."""
    figure, axes = _canvas(1.5 + 0.55 * len(rows))
    for place, row in enumerate(rows):
        counts = row.counts
        low, high = (100 * covered / counts.rows for covered in row.band)
        axes.plot([low, high], [place, place], color="0.8", linewidth=12, solid_capstyle="butt", zorder=1)
        axes.plot(100 * counts.coverage, place, marker="o", markersize=9, color=_colour(row), zorder=3)
        axes.annotate(
            f"{100 * counts.coverage:.1f}", (100 * counts.coverage, place), (0, 10), textcoords="offset points",
            ha="center", zorder=4, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
    target = 100 * float(1 - Fraction(alpha))
    label = rf"$1 - \alpha$ = {target:g} %"
    axes.axvline(target, color=VERMILION, linestyle="--", linewidth=1.2, zorder=2, label=label)
    axes.plot([], [], color="0.8", linewidth=8, label="acceptance band (99.9 %)")
    axes.plot([], [], color=GREY, marker="o", linestyle="none", label="observed")
    axes.set_yticks(range(len(rows)), [_model_name(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.6)
    axes.margins(x=0.15)
    axes.set_xlabel("Coverage of the test rows (%)")
    axes.set_title(f"Coverage on {rows[0].counts.rows} test rows")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    return figure


def _canvas(height: float) -> tuple[Figure, Axes]:
    """A figure of its own on the Agg canvas, so that no global state of pyplot is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_INCHES, height), dpi=DPI, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=TEXT_POINTS)
    return figure, axes


def _draw_guardrail(axes: Axes, rows: Sequence[CandidateRow]) -> None:
    """The lowest eligible accuracy, where the rule is the guardrail (Learn-Then-Test has none)."""
    base = next((row for row in rows if Fraction(row.lam) == 0), None)
    if base is None or not base.reason.startswith(("eligible", "not eligible")):
        return
    lowest = 100 * (base.counts.accuracy - float(ACCURACY_SLACK))
    label = f"lowest accuracy\nallowed (λ = 0 less {100 * float(ACCURACY_SLACK):g} points)"
    axes.axhline(lowest, color=VERMILION, linestyle="--", linewidth=1.2, label=label)


def _points(rows: Sequence[CandidateRow]) -> tuple[list[float], list[float]]:
    return [row.counts.mean_set_size for row in rows], [100 * row.counts.accuracy for row in rows]


def _size_bins(largest: int) -> list[tuple[int, int]]:
    """Inclusive ranges of set sizes: the empty set alone, then equal widths up to the largest."""
    width = max(1, -(-largest // LARGEST_NUMBER_OF_BINS))
    return [(0, 0), *((low, min(low + width - 1, largest)) for low in range(1, largest + 1, width))]


def _model_name(row: ModelRow) -> str:
    return row.model if row.lam is None else f"{row.model} (λ = {row.lam})"


def _colour(row: ModelRow) -> str:
    return MODEL_COLOURS.get(row.model, BLUE)
