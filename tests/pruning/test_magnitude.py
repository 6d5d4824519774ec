from __future__ import annotations

import numpy as np
import pytest
import torch
from prune_requests import prune_request

from optimum_cpp.pruning import PruneRequest
from optimum_cpp.pruning.magnitude import prune_at_random, prune_by_magnitude
from optimum_cpp.registry import BASE_PRUNERS
from reference_pruners import lowest, mixed

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(20, 30, generator=GENERATOR)
GRADIENTS = torch.rand(20, 30, generator=GENERATOR)


def request_of(sparsity: str = "0.5", lam: str = "0", seed: int = 0) -> PruneRequest:
    generator = torch.Generator().manual_seed(seed)
    moment = GRADIENTS if lam != "0" else None
    return prune_request(WEIGHT, moment=moment, lam=lam, sparsity=sparsity, generator=generator)


@pytest.mark.parametrize("lam", ["0", "0.3"])
def test_magnitude_compares_absolute_values_over_the_matrix(lam: str) -> None:
    weight, gradients = WEIGHT.double().numpy(), GRADIENTS.double().numpy()
    importance = mixed(np.abs(weight), weight, gradients if lam != "0" else None, float(lam))
    outcome = prune_by_magnitude(request_of(lam=lam))
    np.testing.assert_array_equal(outcome.pruned.numpy(), lowest(importance.reshape(1, -1), "0.5").reshape(20, 30))
    assert outcome.weight is None


def test_random_masks_hold_the_exact_count_and_follow_the_generator() -> None:
    first = prune_at_random(request_of("0.29")).pruned
    assert first.sum() == 174  # floor(600 * 0.29)
    assert torch.equal(first, prune_at_random(request_of("0.29")).pruned)
    assert not torch.equal(first, prune_at_random(request_of("0.29", seed=1)).pruned)


def test_random_masks_are_uniform() -> None:
    pruned = torch.stack([prune_at_random(request_of("0.5", seed=seed)).pruned for seed in range(400)])
    share = pruned.float().mean(0)  # each within 5 standard deviations, sqrt(.25 / 400) each
    assert (share - 0.5).abs().max() < 5 * 0.025


def test_random_mixes_with_the_saliency() -> None:
    uniform = torch.rand(WEIGHT.shape, generator=torch.Generator().manual_seed(0)).double().numpy()
    importance = mixed(uniform, WEIGHT.double().numpy(), GRADIENTS.double().numpy(), 0.5)
    outcome = prune_at_random(request_of(lam="0.5"))
    np.testing.assert_array_equal(outcome.pruned.numpy(), lowest(importance.reshape(1, -1), "0.5").reshape(20, 30))


@pytest.mark.parametrize("name", ["magnitude", "random"])
def test_neither_needs_data(name: str) -> None:
    assert BASE_PRUNERS[name].needs == "nothing"
