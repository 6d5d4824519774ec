from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from prune_requests import prune_request

from optimum_cpp.errors import ModelError
from optimum_cpp.pruning import PruneRequest
from optimum_cpp.pruning.sparsegpt import prune_by_sparsegpt
from optimum_cpp.pruning.statistics import InputStatistics
from optimum_cpp.registry import BASE_PRUNERS
from optimum_cpp.saliency import Scale
from reference_pruners import lowest, sparsegpt


def data(rows: int, width: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weight, squared gradients, and correlated inputs of unequal size."""
    generator = torch.Generator().manual_seed(width)
    mixing = torch.eye(width) + 0.1 * torch.randn(width, width, generator=generator)
    inputs = torch.randn(tokens, width, generator=generator) @ mixing * torch.linspace(0.5, 2, width)
    weight = torch.randn(rows, width, generator=generator)
    return weight, torch.rand(rows, width, generator=generator) ** 2, inputs


def request_of(
    weight: torch.Tensor,
    statistics: InputStatistics,
    gradients: torch.Tensor | None = None,
    lam: str = "0",
    scale: Scale = "square",
) -> PruneRequest:
    return prune_request(
        weight, name="model.layers.0.fc", statistics=statistics, moment=gradients, scale=scale, lam=lam
    )


def statistics_of(inputs: torch.Tensor) -> InputStatistics:
    width = inputs.shape[1]
    statistics = InputStatistics(0, torch.zeros(width, dtype=torch.float64), torch.zeros(width, width))
    for part in inputs.split(50):
        statistics.add(part)
    return statistics


def arrays(*tensors: torch.Tensor) -> list[Any]:
    return [tensor.double().numpy() for tensor in tensors]


# One block; a block and a ragged rest; three blocks.
@pytest.mark.parametrize("width", [24, 150, 260])
@pytest.mark.parametrize("lam", ["0", "0.3", "1"])
def test_column_by_column_with_an_explicit_inverse(width: int, lam: str) -> None:
    weight, gradients, inputs = data(10, width, 3 * width)
    mixing = {"gradients": gradients.double().numpy(), "lam": float(lam)} if lam != "0" else {}
    expected, pruned = sparsegpt(*arrays(weight, inputs), "0.5", **mixing)
    outcome = prune_by_sparsegpt(request_of(weight, statistics_of(inputs), gradients if mixing else None, lam))
    np.testing.assert_array_equal(outcome.pruned.numpy(), pruned)
    assert outcome.weight is not None
    np.testing.assert_allclose(outcome.weight.numpy(), expected, atol=2e-4)
    assert outcome.damping == 0.01
    # Compensation moves what is kept, by far more than the tolerance.
    assert np.abs(expected - weight.numpy())[~pruned].max() > 0.1


@pytest.mark.parametrize("scale, power", [("root", 0.5), ("absolute", 1.0)])
def test_other_scales_read_the_weights_of_the_moment(scale: Scale, power: float) -> None:
    """In one block every score is of the dense weights, so a mask can be worked out beforehand."""
    weight, gradients, inputs = data(10, 24, 72)
    w, g, x = arrays(weight, gradients, inputs)
    hessian = 2 / len(x) * x.T @ x
    hessian += 0.01 * np.trace(hessian) / 24 * np.eye(24)
    upper = np.linalg.cholesky(np.linalg.inv(hessian)).T
    base, saliency = w**2 / np.diag(upper) ** 2, np.abs(w) * g**power
    score = 0.5 * base / np.linalg.norm(base) + 0.5 * saliency / np.linalg.norm(saliency)
    outcome = prune_by_sparsegpt(request_of(weight, statistics_of(inputs), gradients, "0.5", scale))
    np.testing.assert_array_equal(outcome.pruned.numpy(), lowest(score.reshape(1, -1), "0.5").reshape(10, 24))
    square = prune_by_sparsegpt(request_of(weight, statistics_of(inputs), gradients, "0.5"))
    assert not torch.equal(outcome.pruned, square.pruned)


def test_every_block_of_128_columns_holds_the_exact_count() -> None:
    weight, _, inputs = data(9, 300, 600)
    pruned = prune_by_sparsegpt(request_of(weight, statistics_of(inputs))).pruned
    assert [pruned[:, start : start + 128].sum().item() for start in (0, 128, 256)] == [576, 576, 198]
    assert len(set(pruned.sum(1).tolist())) > 1  # rows compete within a block


def test_it_beats_the_same_mask_without_compensation() -> None:
    weight, _, inputs = data(10, 150, 450)
    outcome = prune_by_sparsegpt(request_of(weight, statistics_of(inputs)))
    assert outcome.weight is not None
    masked = weight.masked_fill(outcome.pruned, 0)
    error, plain = ((inputs @ (new - weight).T).square().sum() for new in (outcome.weight, masked))
    assert error < 0.8 * plain


def test_lambda_zero_ignores_the_saliency_to_the_bit() -> None:
    weight, gradients, inputs = data(10, 150, 300)
    alone = prune_by_sparsegpt(request_of(weight, statistics_of(inputs)))
    zero = prune_by_sparsegpt(request_of(weight, statistics_of(inputs), gradients, "0.0"))
    assert alone.weight is not None and zero.weight is not None
    assert torch.equal(alone.weight, zero.weight) and torch.equal(alone.pruned, zero.pruned)


def test_the_request_is_left_as_it_was() -> None:
    weight, _, inputs = data(10, 24, 100)
    statistics = statistics_of(inputs)
    assert statistics.products is not None
    kept, products = weight.clone(), statistics.products.clone()
    prune_by_sparsegpt(request_of(weight, statistics))
    assert torch.equal(weight, kept) and torch.equal(statistics.products, products)


@pytest.mark.parametrize("lam", ["0", "0.3"])
def test_dead_inputs_lose_their_weights(lam: str) -> None:
    weight, gradients, inputs = data(10, 150, 450)
    inputs[:, [5, 140]] = 0
    mixing = {"gradients": gradients.double().numpy(), "lam": float(lam)} if lam != "0" else {}
    expected, pruned = sparsegpt(*arrays(weight, inputs), "0.5", **mixing)
    outcome = prune_by_sparsegpt(request_of(weight, statistics_of(inputs), gradients if mixing else None, lam))
    assert outcome.weight is not None and not outcome.weight[:, [5, 140]].any()
    np.testing.assert_array_equal(outcome.pruned.numpy(), pruned)
    np.testing.assert_allclose(outcome.weight.numpy(), expected, atol=2e-4)


def hessian_with_eigenvalue(lowest: float) -> torch.Tensor:
    """(8, 8) with unit diagonal; its first two inputs form a block with eigenvalue `lowest`."""
    hessian = torch.eye(8)
    hessian[0, 1] = hessian[1, 0] = 1 - lowest
    return hessian


@pytest.mark.parametrize("lowest, damping", [(0.5, 0.01), (-0.005, 0.01), (-0.05, 0.1), (-0.5, 1.0)])
def test_damping_grows_until_the_hessian_is_positive_definite(
    lowest: float, damping: float, caplog: pytest.LogCaptureFixture
) -> None:
    weight, _, _ = data(6, 8, 8)
    hessian = hessian_with_eigenvalue(lowest)
    statistics = InputStatistics(20, torch.ones(8, dtype=torch.float64), hessian * 20 / 2)
    with caplog.at_level(logging.WARNING):
        outcome = prune_by_sparsegpt(request_of(weight, statistics))
    assert outcome.damping == damping and outcome.weight is not None
    assert (f"model.layers.0.fc: the Hessian needed a damping of {damping:g}" in caplog.text) == (damping > 0.01)
    expected, pruned = sparsegpt(
        weight.double().numpy(), np.empty((0, 8)), "0.5", damping=damping, hessian=hessian.double().numpy()
    )
    np.testing.assert_array_equal(outcome.pruned.numpy(), pruned)
    np.testing.assert_allclose(outcome.weight.numpy(), expected, rtol=1e-3, atol=1e-4)


def test_a_hessian_that_no_damping_mends() -> None:
    weight, _, _ = data(6, 8, 8)
    statistics = InputStatistics(20, torch.ones(8, dtype=torch.float64), hessian_with_eigenvalue(-1.5) * 10)
    with pytest.raises(ModelError, match=r"Hessian of model\.layers\.0\.fc to be positive definite, .* of 1 is not"):
        prune_by_sparsegpt(request_of(weight, statistics))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_hessian_that_is_not_finite(value: float) -> None:
    weight, _, _ = data(6, 8, 8)
    products = torch.eye(8)
    products[2, 3] = value
    statistics = InputStatistics(20, torch.ones(8, dtype=torch.float64), products)
    with pytest.raises(ModelError, match=r"finite Hessian for model\.layers\.0\.fc"):
        prune_by_sparsegpt(request_of(weight, statistics))


def test_it_needs_products() -> None:
    assert BASE_PRUNERS["sparsegpt"].needs == "products"
