from __future__ import annotations

import numpy as np
import pytest
import torch

from optimum_cpp.pruning import PruneRequest
from optimum_cpp.pruning.statistics import InputStatistics
from optimum_cpp.pruning.wanda import prune_by_wanda
from optimum_cpp.registry import BASE_PRUNERS
from reference_pruners import lowest, mixed, wanda_importance

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(12, 40, generator=GENERATOR)
GRADIENTS = torch.rand(12, 40, generator=GENERATOR)
INPUTS = torch.randn(70, 40, generator=GENERATOR) * torch.logspace(-2, 2, 40)


def request_of(inputs: torch.Tensor, sparsity: str, lam: str) -> PruneRequest:
    statistics = InputStatistics(0, torch.zeros(40, dtype=torch.float64), None)
    statistics.add(inputs)
    return PruneRequest(
        name="matrix",
        weight=WEIGHT,
        statistics=statistics,
        squared_gradients=GRADIENTS if lam != "0" else None,
        lam=lam,
        sparsity=sparsity,
        generator=torch.Generator(),
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
