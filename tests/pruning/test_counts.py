from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from optimum_cpp.pruning.counts import lowest_mask, prune_count

percentages = st.integers(0, 999).map(lambda thousandths: str(Decimal(thousandths).scaleb(-3)))


@pytest.mark.parametrize(
    "size, sparsity, expected",
    [
        (100, "0.29", 29),  # 28.999999999999996 in binary floating point
        (100, "0.58", 58),
        (1000, "0.017", 17),
        (10, "0.7", 7),
        (128 * 896, "0.6", 68812),
        (7, "0.5", 3),
        (3, "0.333", 0),
        (3, "0.34", 1),
        (576, "0", 0),
        (576, "0.0", 0),
        (1, "0.999", 0),
    ],
)
def test_counts_are_exact(size: int, sparsity: str, expected: int) -> None:
    assert prune_count(size, sparsity) == expected


def test_the_table_holds_cases_that_floats_get_wrong() -> None:
    assert int(100 * 0.29) == 28 and int(100 * 0.58) == 57 and int(1000 * 0.017) == 17


@given(st.integers(1, 10**7), st.integers(0, 999))
def test_counts_are_integer_division(size: int, thousandths: int) -> None:
    assert prune_count(size, str(Decimal(thousandths).scaleb(-3))) == size * thousandths // 1000


def test_example() -> None:
    importance = torch.tensor([[3.0, 1.0, 2.0, 1.0], [5.0, 5.0, 5.0, 5.0]])
    assert lowest_mask(importance, "0.5").tolist() == [[False, True, False, True], [True, True, False, False]]
    assert lowest_mask(importance, "0.25").tolist() == [[False, True, False, False], [True, False, False, False]]
    assert not lowest_mask(importance, "0.2").any()


@settings(max_examples=60)
@given(
    st.integers(1, 4).flatmap(
        lambda columns: st.lists(
            st.lists(st.sampled_from([0.0, -0.0, 0.5, 1.0, 1e-30, 7.0]), min_size=5 * columns, max_size=5 * columns),
            min_size=1,
            max_size=4,
        )
    ),
    percentages,
)
def test_ties_go_to_the_lower_index(rows: list[list[float]], sparsity: str) -> None:
    importance = np.array(rows, dtype=np.float32)
    count = importance.shape[1] * int(Decimal(sparsity) * 1000) // 1000
    expected = np.zeros(importance.shape, dtype=bool)
    for row, order in enumerate(np.argsort(importance, axis=1, kind="stable")):
        expected[row, order[:count]] = True
    np.testing.assert_array_equal(lowest_mask(torch.from_numpy(importance), sparsity).numpy(), expected)


def test_large_matrices_hold_the_exact_count_in_every_row() -> None:
    importance = torch.randint(0, 9, (50, 1000), generator=torch.Generator().manual_seed(0)).float()
    assert (lowest_mask(importance, "0.437").sum(1) == 437).all()
