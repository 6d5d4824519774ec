from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optimum_cpp.scoring.batching import length_sorted_batches

lengths_of_rows = st.lists(st.integers(1, 40), max_size=30)


def test_example() -> None:
    assert length_sorted_batches([3, 9, 4, 4, 1, 30], 10) == [[5], [1], [2, 3], [0, 4]]


def test_equal_lengths_keep_the_order_of_rows() -> None:
    assert length_sorted_batches([5, 5, 5, 5], 10) == [[0, 1], [2, 3]]


def test_max_rows() -> None:
    assert length_sorted_batches([3, 9, 4, 4, 1, 30], 100, max_rows=2) == [[5, 1], [2, 3], [0, 4]]


def test_no_rows() -> None:
    assert length_sorted_batches([], 10) == []


@given(lengths_of_rows, st.integers(1, 100), st.none() | st.integers(1, 5))
def test_every_row_once_within_both_bounds(lengths: list[int], budget: int, max_rows: int | None) -> None:
    batches = length_sorted_batches(lengths, budget, max_rows)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget
        assert max_rows is None or len(batch) <= max_rows


@given(lengths_of_rows, st.integers(1, 100))
def test_a_batch_ends_only_where_the_next_row_would_not_fit(lengths: list[int], budget: int) -> None:
    batches = length_sorted_batches(lengths, budget)
    flat = [lengths[row] for batch in batches for row in batch]
    assert flat == sorted(lengths, reverse=True)
    for batch in batches[:-1]:
        assert (len(batch) + 1) * lengths[batch[0]] > budget
