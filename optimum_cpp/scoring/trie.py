"""A token trie of the label verbalizers: one packed sequence that scores every label at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class TokenTrie:
    """The verbalizers' tokens merged by common prefixes.

    Only nodes with a child are run through the model: a leaf's token is predicted, never read. Query
    position 0 is the last prompt token and position q >= 1 is node q - 1.

    Attributes:
        tokens: (M,) token ids of the nodes with a child, parents before children.
        parents: (M,) index of each node's parent node, -1 where the parent is the prompt.
        depths: (M,) distance from the last prompt token, 1 for its direct children.
        edge_queries: (E,) query position whose next-token distribution scores the edge.
        edge_tokens: (E,) the token that the edge predicts.
        label_edges: for each of the K labels the edges along its path, one per token.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    edge_queries: tuple[int, ...]
    edge_tokens: tuple[int, ...]
    label_edges: tuple[tuple[int, ...], ...]

    @property
    def num_queries(self) -> int:
        """Positions at which the vocabulary head is needed: the last prompt token and every node."""
        return len(self.tokens) + 1

    def ancestor_mask(self) -> npt.NDArray[np.bool_]:
        """(M, M) mask, True where the row's node may attend to the column's node (itself included)."""
        mask = np.eye(len(self.tokens), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                mask[node] |= mask[parent]
        return mask

    def flat_paths(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(L,) labels and (L,) edges: every label's path, one after the other."""
        lengths = [len(path) for path in self.label_edges]
        return np.repeat(np.arange(len(lengths)), lengths), np.concatenate([np.asarray(p) for p in self.label_edges])

    def label_matrix(self, length_normalize: bool) -> npt.NDArray[np.float64]:
        """(K, E) weights whose product with the edges' log-probabilities gives log p(y | x)."""
        matrix = np.zeros((len(self.label_edges), len(self.edge_tokens)))
        for label, edges in enumerate(self.label_edges):
            matrix[label, list(edges)] = 1 / len(edges) if length_normalize else 1
        return matrix


def build_trie(token_sequences: Sequence[Sequence[int]]) -> TokenTrie:
    """Merge the labels' token sequences (each with at least one token) into a trie."""
    with_child = {tuple(sequence[:end]) for sequence in token_sequences for end in range(1, len(sequence))}
    prefixes = sorted(with_child, key=len)
    query_of = {(): 0} | {prefix: position for position, prefix in enumerate(prefixes, start=1)}
    edge_of: dict[tuple[int, ...], int] = {}
    for sequence in token_sequences:
        for end in range(1, len(sequence) + 1):
            edge_of.setdefault(tuple(sequence[:end]), len(edge_of))
    return TokenTrie(
        tokens=tuple(prefix[-1] for prefix in prefixes),
        parents=tuple(query_of[prefix[:-1]] - 1 for prefix in prefixes),
        depths=tuple(len(prefix) for prefix in prefixes),
        edge_queries=tuple(query_of[path[:-1]] for path in edge_of),
        edge_tokens=tuple(path[-1] for path in edge_of),
        label_edges=tuple(
            tuple(edge_of[tuple(sequence[:end])] for end in range(1, len(sequence) + 1)) for sequence in token_sequences
        ),
    )
