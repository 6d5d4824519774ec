from __future__ import annotations

import numpy as np
import pytest
import torch
from prune_requests import prune_request

from optimum_cpp.pruning import PruneRequest
from optimum_cpp.pruning.statistics import InputStatistics
from optimum_cpp.pruning.wanda import prune_by_wanda, prune_by_wanda_plus_plus
from optimum_cpp.registry import BASE_PRUNERS
from reference_pruners import lowest, mixed, wanda_importance

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(12, 40, generator=GENERATOR)
GRADIENTS = torch.rand(12, 40, generator=GENERATOR)
INPUTS = torch.randn(70, 40, generator=GENERATOR) * torch.logspace(-2, 2, 40)
# Of a size at which neither the gradients nor the norms decide alone.
REGIONAL = torch.rand(12, 40, generator=GENERATOR) ** 4 * 0.01


def request_of(inputs: torch.Tensor, sparsity: str, lam: str, base_moment: torch.Tensor | None = None) -> PruneRequest:
    statistics = InputStatistics(0, torch.zeros(40, dtype=torch.float64), None)
    statistics.add(inputs)
    return prune_request(
        WEIGHT,
        statistics=statistics,
        moment=GRADIENTS if lam != "0" else None,
        base_moment=base_moment,
        lam=lam,
        sparsity=sparsity,
    )


@pytest.mark.parametrize("lam", ["0", "0.3", "1"])
@pytest.mark.parametrize("sparsity", ["0.5", "0.29", "0.9"])
def test_masks_equal_those_of_plain_numpy(sparsity: str, lam: str) -> None:
    weight, inputs, gradients = (tensor.double().numpy() for tensor in (WEIGHT, INPUTS, GRADIENTS))
    importance = mixed(wanda_importance(weight, inputs), weight, gradients if lam != "0" else None, float(lam))
    outcome = prune_by_wanda(request_of(INPUTS, sparsity, lam))
    np.testing.assert_array_equal(outcome.pruned.numpy(), lowest(importance, sparsity))
    assert outcome.weight is None


def test_dead_inputs_go_first() -> None:
    inputs = INPUTS.clone()
    inputs[:, [3, 17]] = 0
    pruned = prune_by_wanda(request_of(inputs, "0.1", "0")).pruned
    assert pruned[:, [3, 17]].all() and (pruned.sum(1) == 4).all()


def test_it_needs_norms_only() -> None:
    assert BASE_PRUNERS["wanda"].needs == "norms"


@pytest.mark.parametrize("lam", ["0", "0.3", "1"])
@pytest.mark.parametrize("sparsity", ["0.5", "0.29", "0.9"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wanda_plus_plus_adds_a_hundred_regional_gradients_to_the_norm(
    dtype: torch.dtype, sparsity: str, lam: str
) -> None:
    weight, inputs, regional = (tensor.double().numpy() for tensor in (WEIGHT, INPUTS, REGIONAL))
    base = np.abs(weight) * (100 * np.sqrt(regional) + np.sqrt((inputs**2).mean(0)))
    importance = mixed(base, weight, GRADIENTS.double().numpy() if lam != "0" else None, float(lam))
    outcome = prune_by_wanda_plus_plus(request_of(INPUTS, sparsity, lam, REGIONAL.to(dtype)))
    np.testing.assert_array_equal(outcome.pruned.numpy(), lowest(importance, sparsity))
    assert outcome.weight is None
    if lam == "0":
        assert not torch.equal(outcome.pruned, prune_by_wanda(request_of(INPUTS, sparsity, lam)).pruned)


def test_without_regional_gradients_wanda_plus_plus_is_wanda() -> None:
    found = prune_by_wanda_plus_plus(request_of(INPUTS, "0.5", "0", torch.zeros(12, 40))).pruned
    assert torch.equal(found, prune_by_wanda(request_of(INPUTS, "0.5", "0")).pruned)


def test_wanda_plus_plus_needs_norms_and_regional_gradients() -> None:
    assert (BASE_PRUNERS["wanda++"].needs, BASE_PRUNERS["wanda++"].gradients) == ("norms", "regional")
