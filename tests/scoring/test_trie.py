from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimum_cpp.scoring.trie import TokenTrie, build_trie

Sequences = list[tuple[int, ...]]
sequences_of_labels = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=5).map(tuple), min_size=1, max_size=8, unique=True
)


def path_of(trie: TokenTrie, node: int) -> tuple[int, ...]:
    """Tokens from the prompt to a node; no token for -1, the prompt itself."""
    return () if node < 0 else (*path_of(trie, trie.parents[node]), trie.tokens[node])


def test_example() -> None:
    trie = build_trie([(7, 8, 9), (7, 8, 5), (7,), (4,)])
    assert trie.tokens == (7, 8)
    assert trie.parents == (-1, 0)
    assert trie.depths == (1, 2)
    assert trie.num_queries == 3
    assert [list(zip(trie.edge_queries, trie.edge_tokens, strict=True))[edge] for edge in trie.label_edges[1]] == [
        (0, 7),
        (1, 8),
        (2, 5),
    ]
    assert len(trie.edge_tokens) == 5  # 7, 8, 9, 5 and 4
    np.testing.assert_array_equal(trie.ancestor_mask(), [[True, False], [True, True]])


def test_labels_of_one_token_need_no_node() -> None:
    trie = build_trie([(3,), (1,), (2,)])
    assert trie.tokens == () and trie.num_queries == 1
    assert trie.ancestor_mask().shape == (0, 0)
    np.testing.assert_array_equal(trie.label_matrix(False), np.eye(3))


@given(sequences_of_labels)
def test_nodes_are_the_prefixes_that_continue(sequences: Sequences) -> None:
    trie = build_trie(sequences)
    paths = [path_of(trie, node) for node in range(len(trie.tokens))]
    assert len(paths) == len(set(paths))
    assert set(paths) == {s[:end] for s in sequences for end in range(1, len(s))}
    assert list(trie.depths) == [len(path) for path in paths]
    assert all(parent < node for node, parent in enumerate(trie.parents))


@given(sequences_of_labels)
def test_each_label_walks_its_own_tokens(sequences: Sequences) -> None:
    trie = build_trie(sequences)
    for sequence, edges in zip(sequences, trie.label_edges, strict=True):
        assert tuple(trie.edge_tokens[edge] for edge in edges) == sequence
        for depth, edge in enumerate(edges):
            assert path_of(trie, trie.edge_queries[edge] - 1) == sequence[:depth]


@given(sequences_of_labels)
def test_common_prefixes_share_edges(sequences: Sequences) -> None:
    trie = build_trie(sequences)
    assert len(trie.edge_tokens) == len({s[:end] for s in sequences for end in range(1, len(s) + 1)})


@given(sequences_of_labels)
def test_a_node_sees_exactly_the_nodes_on_its_path(sequences: Sequences) -> None:
    trie = build_trie(sequences)
    paths = [path_of(trie, node) for node in range(len(trie.tokens))]
    expected = [[path[: len(other)] == other for other in paths] for path in paths]
    np.testing.assert_array_equal(trie.ancestor_mask(), np.array(expected, dtype=bool).reshape(len(paths), len(paths)))


@pytest.mark.parametrize("normalize", [False, True])
@given(sequences=sequences_of_labels)
def test_label_matrix_sums_or_averages_the_edges(normalize: bool, sequences: Sequences) -> None:
    trie = build_trie(sequences)
    values = np.random.default_rng(0).normal(size=len(trie.edge_tokens))
    combine = np.mean if normalize else np.sum
    expected = [combine([values[edge] for edge in edges]) for edges in trie.label_edges]
    np.testing.assert_allclose(trie.label_matrix(normalize) @ values, expected, rtol=1e-12)


@given(sequences_of_labels)
def test_flat_paths_hold_every_labels_edges_one_after_the_other(sequences: Sequences) -> None:
    trie = build_trie(sequences)
    labels, edges = trie.flat_paths()
    pairs = list(zip(labels.tolist(), edges.tolist(), strict=True))
    assert pairs == [(label, edge) for label, path in enumerate(trie.label_edges) for edge in path]
