from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from prune_requests import prune_request

from optimum_cpp.pruning import PruneRequest
from optimum_cpp.pruning.gradients import prune_by_gradient, prune_by_snip
from optimum_cpp.registry import BASE_PRUNERS
from reference_pruners import lowest, mixed

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(12, 40, generator=GENERATOR)
SALIENCY = torch.rand(12, 40, generator=GENERATOR) ** 3
# Gradients of 30 examples, whose size differs between weights.
GRADIENTS = torch.randn(30, 12, 40, generator=GENERATOR) * torch.rand(12, 40, generator=GENERATOR)


def request_of(base_moment: torch.Tensor, sparsity: str, lam: str, weight: torch.Tensor = WEIGHT) -> PruneRequest:
    moment = SALIENCY if lam != "0" else None
    return prune_request(weight, moment=moment, base_moment=base_moment, lam=lam, sparsity=sparsity)


@pytest.mark.parametrize("lam", ["0", "0.3", "1"])
@pytest.mark.parametrize("sparsity", ["0.5", "0.29", "0.9"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_compares_mean_squares_within_each_row(dtype: torch.dtype, sparsity: str, lam: str) -> None:
    gradients, weight = GRADIENTS.double().numpy(), WEIGHT.double().numpy()
    saliency = SALIENCY.double().numpy() if lam != "0" else None
    importance = mixed((gradients**2).mean(0), weight, saliency, float(lam))
    outcome = prune_by_gradient(request_of(GRADIENTS.to(dtype).square().mean(0), sparsity, lam))
    np.testing.assert_array_equal(outcome.pruned.numpy(), lowest(importance, sparsity))
    assert outcome.weight is None


@pytest.mark.parametrize("lam", ["0", "0.3", "1"])
@pytest.mark.parametrize("sparsity", ["0.5", "0.29", "0.9"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_snip_compares_mean_absolute_products_within_each_row(dtype: torch.dtype, sparsity: str, lam: str) -> None:
    gradients, weight = GRADIENTS.double().numpy(), WEIGHT.double().numpy()
    saliency = SALIENCY.double().numpy() if lam != "0" else None
    importance = mixed(np.abs(weight * gradients).mean(0), weight, saliency, float(lam))
    outcome = prune_by_snip(request_of(GRADIENTS.to(dtype).abs().mean(0), sparsity, lam))
    np.testing.assert_array_equal(outcome.pruned.numpy(), lowest(importance, sparsity))
    assert outcome.weight is None


def test_only_snip_sees_the_weights() -> None:
    moment = GRADIENTS.abs().mean(0)
    changed = WEIGHT * torch.rand(12, 40, generator=torch.Generator().manual_seed(1))
    for prune, same in ((prune_by_gradient, True), (prune_by_snip, False)):
        masks: Any = [prune(request_of(moment, "0.5", "0", weight)).pruned for weight in (WEIGHT, changed)]
        assert torch.equal(*masks) == same


def test_weights_of_equal_importance_go_in_order() -> None:
    moment = torch.ones(12, 40)
    pruned = prune_by_gradient(request_of(moment, "0.25", "0")).pruned
    assert pruned[:, :10].all() and not pruned[:, 10:].any()


@pytest.mark.parametrize("name, gradients", [("gradient", "square"), ("snip", "absolute")])
def test_they_need_gradients_and_no_statistics(name: str, gradients: str) -> None:
    assert (BASE_PRUNERS[name].needs, BASE_PRUNERS[name].gradients) == ("nothing", gradients)
