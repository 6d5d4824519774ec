"""The paired bootstrap and the two verdicts of contract preservation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from optimum_cpp.conformal import SizeDifference, contract_preservation, paired_size_difference
from optimum_cpp.errors import DataError, UsageError


def test_a_constant_difference_has_no_spread() -> None:
    reference = np.arange(1, 51)
    result = paired_size_difference(reference + 2, reference, seed=0)
    assert result == SizeDifference(mean=2.0, low=2.0, high=2.0)


def test_the_difference_is_pruned_minus_dense() -> None:
    result = paired_size_difference(np.array([1, 1, 2]), np.array([4, 3, 3]), seed=0)
    assert result.mean == -2.0
    assert -3.0 <= result.low < result.mean < result.high <= -1.0


def test_the_interval_agrees_with_the_normal_approximation() -> None:
    generator = np.random.default_rng(1)
    sizes, reference = generator.integers(1, 14, 2000), generator.integers(1, 14, 2000)
    difference = sizes - reference
    for level in (0.05, 0.2):
        half = norm.isf(level / 2) * difference.std() / np.sqrt(2000)
        result = paired_size_difference(sizes, reference, seed=3, level=level)
        assert result.mean == pytest.approx(difference.mean(), abs=1e-12)
        assert result.mean - result.low == pytest.approx(half, rel=0.1)
        assert result.high - result.mean == pytest.approx(half, rel=0.1)


def test_pairing_removes_what_both_share() -> None:
    shared = np.random.default_rng(2).integers(1, 100, 400)
    sizes = shared + np.arange(400) % 2
    paired = paired_size_difference(sizes, shared, seed=0)
    shuffled = paired_size_difference(sizes, np.roll(shared, 1), seed=0)
    assert paired.high - paired.low < 0.15 < 3 < shuffled.high - shuffled.low


def test_the_seed_decides() -> None:
    sizes, reference = np.random.default_rng(0).integers(0, 9, (2, 100))
    first = paired_size_difference(sizes, reference, seed=5)
    assert paired_size_difference(sizes, reference, seed=5) == first
    assert paired_size_difference(sizes, reference, seed=6) != first
    assert paired_size_difference(sizes, reference, seed=5, resamples=10) != first


def test_unsigned_sizes_do_not_wrap_around() -> None:
    result = paired_size_difference(np.array([1, 1], dtype=np.uint8), np.array([2, 2], dtype=np.uint8), seed=0)
    assert (result.mean, result.low, result.high) == (-1.0, -1.0, -1.0)


@pytest.mark.parametrize(
    ("sizes", "reference", "message"),
    [
        (np.zeros(0, dtype=int), np.zeros(0, dtype=int), "empty"),
        (np.zeros(3), np.zeros(3, dtype=int), "`sizes`.*float64"),
        (np.zeros(3, dtype=int), np.zeros(3), "`reference_sizes`.*float64"),
        (np.zeros(3, dtype=int), np.zeros(2, dtype=int), r"`reference_sizes`.*shape \(3,\)"),
        (np.zeros((3, 1), dtype=int), np.zeros((3, 1), dtype=int), "`sizes`"),
        ([1, 2], np.zeros(2, dtype=int), "list"),
    ],
)
def test_bad_sizes_are_refused(sizes: np.ndarray, reference: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        paired_size_difference(sizes, reference, seed=0)


@pytest.mark.parametrize("options", [{"resamples": 0}, {"level": 0.0}, {"level": 1.0}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        paired_size_difference(np.ones(3, dtype=int), np.ones(3, dtype=int), seed=0, **options)


@pytest.mark.parametrize(
    ("covered", "verdict", "place"),
    [
        (4319, "fails", "below"),
        (4320, "holds", "inside"),
        (4657, "holds", "inside"),
        (4658, "undecided", "above"),
    ],
)
def test_validity(covered: int, verdict: str, place: str) -> None:
    result = contract_preservation(
        covered=covered, band=(4320, 4657), difference=SizeDifference(0.0, 0.0, 0.0), epsilon_size="0.5"
    )
    assert result.validity.verdict == verdict
    assert result.validity.reason == f"{covered} rows covered, {place} the acceptance band [4320, 4657]"


@pytest.mark.parametrize(
    ("low", "high", "slack", "verdict"),
    [
        (0.1, 0.4, "0.5", "holds"),
        (-2.0, -1.0, "0", "holds"),
        (0.1, 0.5, "0.5", "holds"),
        (0.1, 500 / 5000, "0.1", "holds"),
        (0.1, 0.6, "0.5", "undecided"),
        (0.5, 0.6, "0.5", "undecided"),
        (0.51, 0.6, "0.5", "fails"),
        (0.51, 0.6, "0.55", "undecided"),
    ],
)
def test_efficiency(low: float, high: float, slack: str, verdict: str) -> None:
    difference = SizeDifference(mean=(low + high) / 2, low=low, high=high)
    result = contract_preservation(covered=9, band=(5, 10), difference=difference, epsilon_size=slack)
    assert result.efficiency.verdict == verdict
    assert result.efficiency.reason.endswith(f"interval [{low:+.4f}, {high:+.4f}], slack {slack}")


@pytest.mark.parametrize("slack", ["-0.1", "nan", "half", "1/2"])
def test_bad_slack_is_refused(slack: str) -> None:
    with pytest.raises(UsageError, match="`epsilon_size`"):
        contract_preservation(covered=9, band=(5, 10), difference=SizeDifference(0.0, 0.0, 0.0), epsilon_size=slack)


def test_a_swapped_band_is_refused() -> None:
    with pytest.raises(UsageError, match="`band`"):
        contract_preservation(covered=9, band=(10, 5), difference=SizeDifference(0.0, 0.0, 0.0), epsilon_size="0.5")
