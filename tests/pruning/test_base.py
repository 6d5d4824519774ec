from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from prune_requests import prune_request

from optimum_cpp.pruning.base import PruneRequest, mix, prune_output_rows, prune_whole_matrix, unit_scale
from optimum_cpp.saliency import Scale, importance
from reference_pruners import lowest, mixed


def request_of(
    weight: torch.Tensor, gradients: torch.Tensor | None, lam: str, sparsity: str = "0.5", scale: Scale = "square"
) -> PruneRequest:
    return prune_request(weight, moment=gradients, scale=scale, lam=lam, sparsity=sparsity)


@pytest.fixture
def given() -> Any:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(6, 10, generator=generator)
    gradients = torch.rand(6, 10, generator=generator) ** 4 * 1e-5
    base = torch.rand(6, 10, generator=generator) * 1e3
    return weight, gradients, base


def arrays(*tensors: torch.Tensor) -> list[Any]:
    return [tensor.double().numpy() for tensor in tensors]


def test_importance_is_squared_weight_times_squared_gradient(given: Any) -> None:
    weight, gradients, _ = given
    expected = np.array(
        [[weight[i, j].item() ** 2 * gradients[i, j].item() for j in range(10)] for i in range(6)], dtype=np.float64
    )
    np.testing.assert_allclose(importance(weight, gradients, "square"), expected, rtol=1e-6)


@pytest.mark.parametrize("lam", ["0.1", "0.3", "0.5", "0.999"])
def test_both_terms_have_unit_norm_over_the_matrix(given: Any, lam: str) -> None:
    weight, gradients, base = given
    expected = mixed(*arrays(base, weight, gradients), float(lam))
    np.testing.assert_allclose(mix(base, request_of(weight, gradients, lam)), expected, rtol=1e-5)


@pytest.mark.parametrize("lam", ["0.1", "0.5"])
@pytest.mark.parametrize("scale, power", [("root", 0.5), ("absolute", 1.0)])
def test_other_scales_of_the_saliency(given: Any, lam: str, scale: Scale, power: float) -> None:
    weight, gradients, base = given
    w, g, b = arrays(weight, gradients, base)
    saliency = np.abs(w) * g**power
    expected = (1 - float(lam)) * b / np.sqrt((b**2).sum()) + float(lam) * saliency / np.sqrt((saliency**2).sum())
    np.testing.assert_allclose(mix(base, request_of(weight, gradients, lam, scale=scale)), expected, rtol=1e-5)


@pytest.mark.parametrize("lam", ["0", "0.0", "0.00"])
def test_lambda_zero_is_the_base_importance_itself(given: Any, lam: str) -> None:
    weight, gradients, base = given
    assert mix(base, request_of(weight, gradients, lam)) is base
    assert mix(base, request_of(weight, None, lam)) is base


def test_lambda_one_is_the_saliency_alone(given: Any) -> None:
    weight, gradients, base = given
    saliency = importance(weight, gradients, "square")
    found = mix(base, request_of(weight, gradients, "1"))
    np.testing.assert_allclose(found, saliency / torch.linalg.vector_norm(saliency), rtol=1e-5)
    assert torch.equal(found.flatten().argsort(), saliency.flatten().argsort())


def test_a_term_of_zero_norm_contributes_nothing(given: Any) -> None:
    weight, gradients, base = given
    zero = torch.zeros_like(base)
    saliency = importance(weight, gradients, "square")
    found = mix(zero, request_of(weight, gradients, "0.3"))
    np.testing.assert_allclose(found, 0.3 * saliency / torch.linalg.vector_norm(saliency), rtol=1e-5)
    found = mix(base, request_of(weight, zero, "0.3"))
    np.testing.assert_allclose(found, 0.7 * base / torch.linalg.vector_norm(base), rtol=1e-5)
    assert not mix(zero, request_of(weight, zero, "0.3")).any()


def test_norms_neither_overflow_nor_underflow_in_float32() -> None:
    for value in (1e30, 1e-30):
        assert unit_scale(torch.full((2, 8), value)) == pytest.approx(0.25 / value, rel=1e-6)
    assert unit_scale(torch.zeros(3, 3)) == 0


def test_the_whole_matrix_is_one_comparison_group(given: Any) -> None:
    weight, gradients, base = given
    expected = mixed(*arrays(base, weight, gradients), 0.3)
    outcome = prune_whole_matrix(base, request_of(weight, gradients, "0.3", "0.29"))
    np.testing.assert_array_equal(outcome.pruned.numpy(), lowest(expected.reshape(1, -1), "0.29").reshape(6, 10))
    assert outcome.pruned.sum() == 17  # floor(60 * 0.29)
    assert len(set(outcome.pruned.sum(1).tolist())) > 1
    assert outcome.weight is None and outcome.damping is None


def test_each_output_row_is_a_comparison_group(given: Any) -> None:
    weight, gradients, base = given
    expected = mixed(*arrays(base, weight, gradients), 0.3)
    outcome = prune_output_rows(base, request_of(weight, gradients, "0.3", "0.29"))
    np.testing.assert_array_equal(outcome.pruned.numpy(), lowest(expected, "0.29"))
    assert outcome.pruned.sum(1).tolist() == [2] * 6
