"""The benchmarks run to the end on a tiny model and report every figure that others rely on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import bench_core
import bench_duplicates
import bench_saliency
import bench_scoring
import bench_verify
import common
import gpu_check
import pytest
import torch

from optimum_cpp.loading import load_model
from optimum_cpp.saliency import Estimator, true_labels
from optimum_cpp.scoring import VerbalizerScorer

SALIENCY_KEYS = """
    matrix_rate_fraction.true threshold_over_true threshold_rademacher_over_true all_rademacher_over_true.pool
    all_exact_over_true.pool all_rademacher_counted_ratio.pool cpp_wanda_over_wanda
    cpp_threshold_rademacher_wanda_over_wanda cpp_sparsegpt_over_sparsegpt rescued_jaccard.sketch
    rescued_jaccard.halves peak_memory_mib.true all_rademacher_over_true.again
    all_rademacher_counted_ratio.again
""".split()
SCORING_KEYS = """
    scoring_over_per_label.pool token_ratio.pool distinct_token_ratio.pool counted_ratio.pool scoring_of_bound.pool
    matrix_rate_fraction.scoring.pool
""".split()
CORE_KEYS = [f"matrix_rate_fraction.{stage}" for stage in ("scoring", "saliency", "wanda", "sparsegpt")]
Main = Callable[[Sequence[str]], None]


@pytest.fixture
def figures_of(dense_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, float]]:
    monkeypatch.setattr(common.MatrixRate, "measure", lambda self: 1e9)

    def run(main: Main, *arguments: str) -> dict[str, float]:
        path = tmp_path / "figures.json"
        main(["--model", str(dense_folder), "--rows", "4", "--repeats", "2", "--json", str(path), *arguments])
        figures: dict[str, float] = json.loads(path.read_text())
        return figures

    return run


def test_scoring(figures_of: Callable[..., dict[str, float]], pool_file: Path) -> None:
    figures = figures_of(bench_scoring.main, "--datasets", str(pool_file))
    assert all(figures[key] > 0 for key in SCORING_KEYS)
    assert figures["largest_difference.pool"] < 1e-4
    assert figures["token_ratio.pool"] >= figures["distinct_token_ratio.pool"] > 1


def test_scoring_refuses_other_scores(
    figures_of: Callable[..., dict[str, float]], pool_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = bench_scoring.per_label_scores
    monkeypatch.setattr(bench_scoring, "per_label_scores", lambda scorer, texts: right(scorer, texts) + 0.02)
    with pytest.raises(SystemExit, match=r"differ by 0\.02"):
        figures_of(bench_scoring.main, "--datasets", str(pool_file))


def test_saliency(figures_of: Callable[..., dict[str, float]], pool_file: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl"
    again.write_bytes(pool_file.read_bytes())
    figures = figures_of(bench_saliency.main, "--quality_rows", "3", "--datasets", str(pool_file), str(again))
    assert all(math.isfinite(figures[key]) and figures[key] > 0 for key in SALIENCY_KEYS)
    assert all(figures[f"rescued_jaccard.{name}"] <= 1 for name in ("sketch", "halves"))


def test_core(figures_of: Callable[..., dict[str, float]], pool_file: Path) -> None:
    figures = figures_of(bench_core.main, "--dataset", str(pool_file))
    assert all(figures[key] > 0 for key in CORE_KEYS)


def test_one_backward_pass_is_twice_a_forward_pass(dense_folder: Path, pool_file: Path) -> None:
    bench = common.open_bench(load_model(dense_folder), str(pool_file), [])
    rows = bench.first(4)
    assert isinstance(bench.scorer, VerbalizerScorer)
    prompts = bench.scorer.encoder.encode(rows.texts).prompts
    lengths = [len(bench.scorer.label_token_ids()[label]) for label in rows.labels]
    tokens = sum(len(prompt) + length - 1 for prompt, length in zip(prompts, lengths, strict=True))
    expected = 3 * (bench.per_token * tokens + bench.per_position * sum(lengths))
    for estimator in (Estimator(), Estimator(num_sketches=1)):
        assert common.saliency_operations(bench, rows.texts, true_labels(rows.labels), estimator) == expected


def test_too_few_rows_are_refused(figures_of: Callable[..., dict[str, float]], pool_file: Path) -> None:
    with pytest.raises(SystemExit, match="Expected pool to have 301 rows"):
        figures_of(bench_core.main, "--rows", "301", "--dataset", str(pool_file))


def test_splits_that_a_data_set_lacks_are_left_out(dense_folder: Path, pool_file: Path) -> None:
    loaded = load_model(dense_folder)
    assert len(common.open_bench(loaded, str(pool_file), ["validation", "train"]).rows.texts) == 300
    with pytest.raises(SystemExit, match="but its splits are train"):
        common.open_bench(loaded, str(pool_file), ["test"])


def test_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_verify, "SHAPE", (64, 32))
    path = tmp_path / "figures.json"
    bench_verify.main(["--gib", "0.0001", "--folder", str(tmp_path), "--json", str(path)])
    figures = json.loads(path.read_text())
    assert figures["gib"] > 0.00009 and all(figures[key] > 0 for key in ("files_gib_s", "masks_gib_s"))
    assert figures["files_over_sha256sum"] >= figures["verify_over_sha256sum"] > 0
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_agrees_with_the_cpu(figures_of: Callable[..., dict[str, float]], pool_file: Path) -> None:
    figures = figures_of(gpu_check.main, "--datasets", str(pool_file), "--device", "cpu")
    assert figures["largest_difference.scores"] == figures["largest_difference.all"] == 0
    assert {figures[f"equal_masks.{pruner}@{lam}"] for pruner in gpu_check.PRUNERS for lam in ("0", "0.3")} == {1}
    assert figures["matrix_rate_fraction.true.pool"] > 0


@pytest.mark.parametrize("moved", ["scores", "moments", "masks"])
def test_a_device_that_computes_something_else_is_named(
    figures_of: Callable[..., dict[str, float]], pool_file: Path, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    right, calls = gpu_check.outcome_of, []

    def wrong(bench: common.Bench, rows: common.Rows) -> gpu_check.Outcome:
        calls.append(outcome := right(bench, rows))
        if len(calls) == 2:
            outcome.scores[0, 0] += 0.01 * (moved == "scores")
            first = next(iter(outcome.moments["all"].values()))
            first *= 1 + 0.01 * (moved == "moments")
            mask = next(iter(outcome.masks["wanda@0.3"].values()))
            mask ^= torch.tensor(moved == "masks")
        return outcome

    monkeypatch.setattr(gpu_check, "outcome_of", wrong)
    named = {"scores": "scores", "moments": "difference.all", "masks": "wanda@0.3"}
    with pytest.raises(SystemExit, match=named[moved]):
        figures_of(gpu_check.main, "--datasets", str(pool_file), "--device", "cpu")


def test_near_duplicates_are_found(tmp_path: Path) -> None:
    bench_duplicates.main(["--rows", "2000", "--json", str(tmp_path / "figures.json")])
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["recall"] == 1 and figures["seconds"] > 0
