"""From the recipe to labels, gradients and the contract's words about them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import optimum_cpp.candidates as candidates
import optimum_cpp.measured_saliency as measured_saliency
from optimum_cpp.blocks import find_blocks, matrices_of
from optimum_cpp.candidates import DENSE, Bench, MeasuredCandidate
from optimum_cpp.contract.canonical import from_hex
from optimum_cpp.contract.claims import SaliencyClaim
from optimum_cpp.errors import CPPError, DataError, UsageError
from optimum_cpp.measured_saliency import base_gradients, check_saliency, measure_saliency
from optimum_cpp.modeling import CPPResult
from optimum_cpp.pruner import CPPPruner, get_data_roles
from optimum_cpp.saliency import Estimator, gradient_moments
from optimum_cpp.scoring import ScoreTransform, VerbalizerScorer
from tiny_models import LABELS, byte_tokenizer, task, tiny_model
from tiny_runs import small_config

NLL = ScoreTransform("nll")
Measured = tuple[Bench, MeasuredCandidate]


@pytest.fixture(scope="module")
def measured(pool_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """A tiny dense model on its bench, and its scores on validation."""
    config = small_config(dataset=str(pool_file), score="prior_nll")
    scorer = VerbalizerScorer(tiny_model("llama"), byte_tokenizer(opening="<s>"), task())
    blocks = find_blocks(scorer.model)
    roles = get_data_roles(config=config)
    bench = Bench(scorer, blocks, tuple(matrices_of(blocks)), roles, config, tmp_path_factory.mktemp("work"))
    return bench, bench.measure(DENSE)


def with_options(measured: Measured, **changes: Any) -> tuple[Bench, MeasuredCandidate]:
    """The same bench under another recipe, measured again where that changes the score."""
    bench = dataclasses.replace(measured[0], config=measured[0].config.replace(**changes))
    return bench, bench.measure(DENSE) if {"score", "temperature"} & set(changes) else measured[1]


def moments_of(bench: Bench, targets: Any, **options: Any) -> dict[str, torch.Tensor]:
    given: dict[str, Any] = dict(score=NLL, batch_tokens=bench.scorer.batch_tokens) | options
    return gradient_moments(bench.scorer, bench.matrices, bench.roles.prune.texts, targets, **given)


def assert_close(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert set(found) == set(expected)
    for name, moment in expected.items():
        torch.testing.assert_close(found[name], moment, rtol=1e-5, atol=1e-6 * float(moment.max()))


def prior_nll(log_p: Any, prior: Any) -> Any:
    shifted = log_p - prior
    return np.log(np.exp(shifted).sum(1, keepdims=True)) - shifted


def scores_by_hand(bench: Bench) -> tuple[Any, Any]:
    """Dense scores of val_cal and prune by the sets' score, whose prior is val_cal's mean."""
    roles = bench.roles
    cal, prune = (bench.scorer.log_probabilities(role.texts) for role in (roles.val_cal, roles.prune))
    return prior_nll(cal, cal.mean(0)), prior_nll(prune, cal.mean(0))


def band_by_hand(bench: Bench, cal: Any) -> tuple[float, float]:
    labels = bench.roles.val_cal.labels
    rank = math.ceil((len(labels) + 1) * (1 - Fraction(bench.config.alpha)))
    quantile = sorted(float(cal[row, label]) for row, label in enumerate(labels))[rank - 1]
    return quantile, float(np.quantile(np.abs(cal - quantile).ravel(), 0.2))


def near_by_hand(scores: Any, quantile: float, width: float) -> list[tuple[int, ...]]:
    found = []
    for row in scores:
        ranked = sorted((abs(float(score) - quantile), label) for label, score in enumerate(row))
        found.append(tuple(label for d, label in ranked if d <= width)[:8] or (ranked[0][1],))
    return found


def test_labels_near_the_dense_quantile(measured: Measured) -> None:
    bench, dense = with_options(measured, saliency="threshold")
    saliency, facts = measure_saliency(bench, dense)
    cal, prune = scores_by_hand(bench)
    quantile, width = band_by_hand(bench, cal)
    assert facts.band is not None
    assert (facts.band.quantile, facts.band.width) == (pytest.approx(quantile), pytest.approx(width))
    assert dense.quantile == facts.band.quantile
    targets = near_by_hand(prune, quantile, width)
    assert facts.labels_per_example == tuple(len(labels) for labels in targets)
    assert len(set(facts.labels_per_example)) > 1 and saliency.scale == facts.scale == "square"
    assert_close(saliency.moments, moments_of(bench, targets))


@pytest.mark.parametrize("top_k", [1, 3, 6])
def test_labels_with_the_smallest_scores_of_the_sets_own_score(measured: Measured, top_k: int) -> None:
    bench, dense = with_options(measured, saliency="top_k", top_k=top_k)
    saliency, facts = measure_saliency(bench, dense)
    _, prune = scores_by_hand(bench)
    targets = [tuple(sorted(range(6), key=lambda label: (row[label], label))[:top_k]) for row in prune.tolist()]
    assert facts.labels_per_example == (top_k,) * 16 and facts.band is None
    assert_close(saliency.moments, moments_of(bench, targets))


def true_targets(bench: Bench) -> list[tuple[int, ...]]:
    return [(label,) for label in bench.roles.prune.labels]


def test_true_labels_all_labels_and_scales(measured: Measured) -> None:
    for options, targets, moment, scale in (
        ({}, true_targets(measured[0]), "square", "square"),
        ({"importance_scale": "root"}, true_targets(measured[0]), "square", "root"),
        ({"saliency": "snip"}, true_targets(measured[0]), "absolute", "absolute"),
        ({"saliency": "all"}, [tuple(range(6))] * 16, "square", "square"),
    ):
        bench, dense = with_options(measured, **options)
        saliency, facts = measure_saliency(bench, dense)
        assert saliency.scale == facts.scale == scale and facts.band is None
        assert facts.labels_per_example == tuple(len(labels) for labels in targets)
        assert_close(saliency.moments, moments_of(bench, targets, moment=moment))


def test_random_signs_follow_the_seed_and_the_number_of_sketches(measured: Measured) -> None:
    bench, dense = with_options(measured, saliency="all", estimator="rademacher", num_sketches=3, seed=5)
    saliency, _ = measure_saliency(bench, dense)
    targets = [tuple(range(6))] * 16
    assert_close(saliency.moments, moments_of(bench, targets, estimator=Estimator(3, 5)))
    with pytest.raises(AssertionError):
        assert_close(saliency.moments, moments_of(bench, targets))


@pytest.mark.parametrize("sets_score", ["nll", "prior_nll"])
@pytest.mark.parametrize("saliency_score", ["nll", "label_nll", "prior_nll"])
def test_the_differentiated_score_has_its_own_prior_and_temperature(
    measured: Measured, sets_score: str, saliency_score: str
) -> None:
    """Whatever score the sets use: the prior is val_cal's mean, the temperature the recipe's."""
    bench, dense = with_options(measured, score=sets_score, saliency_score=saliency_score, temperature="2.5")
    saliency, _ = measure_saliency(bench, dense)
    prior = tuple(bench.scorer.log_probabilities(bench.roles.val_cal.texts).mean(0).tolist())
    score = ScoreTransform(saliency_score, 2.5, prior if saliency_score == "prior_nll" else None)
    assert_close(saliency.moments, moments_of(bench, true_targets(bench), score=score))


def test_a_fitted_temperature_is_the_dense_models(measured: Measured) -> None:
    bench, dense = with_options(measured, saliency_score="prior_nll", temperature="fit")
    assert dense.transform.temperature != 1
    saliency, _ = measure_saliency(bench, dense)
    assert_close(saliency.moments, moments_of(bench, true_targets(bench), score=dense.transform))


def test_gradients_of_a_base_pruner_are_those_of_the_true_labels_likelihood(measured: Measured) -> None:
    """Whatever the saliency is."""
    for base_pruner, moment in (("gradient", "square"), ("snip", "absolute")):
        options = {"saliency": "all", "saliency_score": "prior_nll", "estimator": "rademacher"}
        bench, _ = with_options(measured, base_pruner=base_pruner, **options)
        found = base_gradients(bench)
        assert found is not None
        assert_close(found, moments_of(bench, true_targets(bench), moment=moment))
    for base_pruner in ("magnitude", "random", "wanda", "wanda++", "sparsegpt"):
        assert base_gradients(with_options(measured, base_pruner=base_pruner)[0]) is None


@pytest.fixture
def wide(pool_file: Path, tmp_path: Path) -> Measured:
    """As `measured`, with 0.77 MiB of gradient sums in each of three blocks."""
    config = small_config(dataset=str(pool_file), score="prior_nll")
    model = tiny_model("llama", intermediate_size=2048, num_hidden_layers=3)
    scorer = VerbalizerScorer(model, byte_tokenizer(opening="<s>"), task())
    blocks = find_blocks(model)
    bench = Bench(scorer, blocks, tuple(matrices_of(blocks)), get_data_roles(config=config), config, tmp_path)
    return bench, bench.measure(DENSE)


def groups_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many matrices each call for gradients will have."""
    sizes: list[int] = []
    original = measured_saliency.gradient_moments

    def watched(scorer: Any, matrices: Any, *args: Any, **options: Any) -> Any:
        sizes.append(len(matrices))
        return original(scorer, matrices, *args, **options)

    monkeypatch.setattr(measured_saliency, "gradient_moments", watched)
    return sizes


@pytest.mark.parametrize("options", [{}, {"saliency": "snip"}, {"saliency": "all", "estimator": "rademacher"}])
@pytest.mark.parametrize("memory, groups", [(1, [7, 7, 7]), (2, [14, 7]), (3, [21])])
def test_groups_of_blocks_give_the_same_gradients(
    wide: Measured, options: dict[str, Any], memory: int, groups: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = measure_saliency(*with_options(wide, **options))
    sizes = groups_of(monkeypatch)
    bench, dense = with_options(wide, **options, saliency_memory=memory, base_pruner="gradient")
    found, _ = measure_saliency(bench, dense)
    assert sizes == groups and list(found.moments) == [matrix.name for matrix in bench.matrices]
    assert_close(found.moments, expected.moments)
    # The base pruner's own gradients go to other files.
    own = base_gradients(bench)
    assert own is not None and sizes == 2 * groups
    assert_close(own, moments_of(bench, true_targets(bench)))
    assert_close(found.moments, expected.moments)


def test_a_block_without_matrices_to_prune_takes_no_memory(measured: Measured, tmp_path: Path) -> None:
    blocks = find_blocks(measured[0].scorer.model, target_modules=["layers.1.mlp.up_proj"])
    bench = dataclasses.replace(measured[0], blocks=blocks, matrices=tuple(matrices_of(blocks)), work=tmp_path)
    plain, _ = measure_saliency(bench, measured[1])
    bench = dataclasses.replace(bench, config=bench.config.replace(saliency_memory=1))
    check_saliency(bench.config, 6, 40, blocks)
    assert_close(measure_saliency(bench, measured[1])[0].moments, plain.moments)


def test_memory_below_one_block_is_refused() -> None:
    model = tiny_model("llama", intermediate_size=4096)
    with pytest.raises(UsageError, match=r"`saliency_memory` to hold .* of one block, at least 2 MiB, but got 1"):
        check_saliency(small_config(saliency_memory=1), 6, 40, find_blocks(model))
    check_saliency(small_config(saliency_memory=2), 6, 40, find_blocks(model))


def test_too_few_rows_for_a_threshold(measured: Measured) -> None:
    bench, dense = with_options(measured, saliency="threshold", alpha="0.01")
    with pytest.raises(DataError, match="40 are too few for a threshold"):
        measure_saliency(bench, dense)


RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gradient with true": ({"base_pruner": "gradient"}, {"targets": "true"}),
    "snip with snip": (
        {"base_pruner": "snip", "saliency": "snip"},
        {"targets": "snip", "importance_scale": "absolute"},
    ),
    "wanda with snip": ({"saliency": "snip"}, {"targets": "snip", "importance_scale": "absolute"}),
    "wanda++ with threshold": ({"base_pruner": "wanda++", "saliency": "threshold"}, {"targets": "threshold"}),
    "sparsegpt with top_k, root": (
        {"base_pruner": "sparsegpt", "saliency": "top_k", "top_k": 2, "importance_scale": "root"},
        {"targets": "top_k", "importance_scale": "root", "labels_per_example": (2,) * 16},
    ),
    "wanda with all, sketched": (
        {"saliency": "all", "estimator": "rademacher", "num_sketches": 2, "saliency_score": "prior_nll"},
        {
            "targets": "all",
            "estimator": "rademacher",
            "num_sketches": 2,
            "score": "prior_nll",
            "labels_per_example": (6,) * 16,
        },
    ),
}


@pytest.mark.parametrize("run", RUNS)
def test_the_whole_way_and_what_the_contract_says(
    run: str, dense_folder: Path, pool_file: Path, tmp_path: Path
) -> None:
    options, expected = RUNS[run]
    config = small_config(dataset=str(pool_file), **options)
    result = CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    assert result.results.achieved_sparsity == 0.5
    claim = result.contract.claims.pruning
    assert claim is not None and claim.base_pruner == config.base_pruner
    assert claim.saliency is not None
    plain = SaliencyClaim("true", "nll", "exact", 0, "square", (1,) * 16, None)
    if expected["targets"] == "threshold":
        assert claim.saliency.threshold is not None and len(claim.saliency.labels_per_example) == 16
        assert all(1 <= count <= 6 for count in claim.saliency.labels_per_example)
        assert math.isfinite(from_hex(claim.saliency.threshold.quantile))
        assert from_hex(claim.saliency.threshold.width) > 0
        expected = expected | {
            "threshold": claim.saliency.threshold,
            "labels_per_example": claim.saliency.labels_per_example,
        }
    assert claim.saliency == dataclasses.replace(plain, **expected)
    from optimum_cpp import CPPModelForCausalLM

    opened = CPPModelForCausalLM.from_pretrained(tmp_path / "out")
    assert opened.contract.claims == result.contract.claims
    assert opened.predict_set("the sea")[0]["label"] in LABELS


def test_the_contracts_threshold_is_that_of_the_dense_model(
    measured: Measured, dense_folder: Path, pool_file: Path, tmp_path: Path
) -> None:
    config = small_config(dataset=str(pool_file), saliency="threshold")
    result = CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    claim = result.contract.claims.pruning
    assert claim is not None and claim.saliency is not None and claim.saliency.threshold is not None
    cal, prune = scores_by_hand(measured[0])
    quantile, width = band_by_hand(measured[0], cal)
    assert from_hex(claim.saliency.threshold.quantile) == pytest.approx(quantile, abs=1e-5)
    assert from_hex(claim.saliency.threshold.width) == pytest.approx(width, abs=1e-5)
    counts = [len(labels) for labels in near_by_hand(prune, quantile, width)]
    # A distance within rounding of the width may fall on either side.
    close = (np.abs(np.abs(prune - quantile) - width) < 1e-4).sum(1)
    assert all(abs(a - b) <= c for a, b, c in zip(claim.saliency.labels_per_example, counts, close, strict=True))


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"saliency": "top_k", "top_k": 7}, "`top_k` to be at most the number of labels, 6, but got 7"),
        ({"saliency": "threshold", "val_rows": 4}, "finite quantile at alpha = 0.2, but 2 are too few for a threshold"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_computed(
    options: dict[str, Any],
    sentence: str,
    dense_folder: Path,
    pool_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VerbalizerScorer, "log_probabilities", lambda *a, **k: pytest.fail("the model was scored"))
    monkeypatch.setattr(candidates, "save_weights", lambda *a, **k: pytest.fail("weights were written"))
    config = small_config(dataset=str(pool_file), **options)
    with pytest.raises(CPPError, match=sentence):
        CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_lambda_zero_alone_takes_the_base_pruners_gradients_only(
    dense_folder: Path, pool_file: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = dict(base_pruner="gradient", lambda_grid=("0",), saliency="all", test_rows="0")
    config = small_config(dataset=str(pool_file), **options)
    result: CPPResult = CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    claim = result.contract.claims.pruning
    assert claim is not None and claim.saliency is None and claim.base_pruner == "gradient"
    assert result.results.achieved_sparsity == 0.5
