from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from optimum_cpp.scoring.packing import PackedBatch, attention_masks, pack
from optimum_cpp.scoring.trie import TokenTrie, build_trie

PAD = 99
# Nodes 1, 5, then 2 under 1.
TRIE = build_trie([(1, 2, 3), (1, 4), (5, 6), (8,)])


@pytest.fixture
def batch() -> PackedBatch:
    return pack([(10, 11, 12), (20,)], [TRIE, TRIE], PAD)


def model(attention: str = "sdpa", dtype: torch.dtype = torch.float32, **config: Any) -> Any:
    text_config = SimpleNamespace(**config)
    own = SimpleNamespace(_attn_implementation=attention, get_text_config=lambda: text_config)
    return SimpleNamespace(config=own, dtype=dtype)


def test_rows_end_together_behind_padding(batch: PackedBatch) -> None:
    assert TRIE.tokens == (1, 5, 2)
    assert batch.input_ids.tolist() == [[10, 11, 12, 1, 5, 2], [PAD, PAD, 20, 1, 5, 2]]
    assert batch.real.tolist() == [[True] * 6, [False, False, True, True, True, True]]


def test_positions_follow_the_path_behind_the_prompt(batch: PackedBatch) -> None:
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 3, 4], [0, 0, 0, 1, 1, 2]]


def test_who_sees_whom(batch: PackedBatch) -> None:
    first = [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 1, 1, 1, 0, 1],
    ]
    second = [
        [1, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 1, 1, 0, 0],
        [0, 0, 1, 0, 1, 0],
        [0, 0, 1, 1, 0, 1],
    ]
    np.testing.assert_array_equal(batch.visible.numpy(), np.array([first, second], dtype=bool))


# As many labels each, but other nodes, queries and edges; the last has no node at all.
TRIES = [TRIE, build_trie([(1, 4), (5, 6), (1, 2, 3, 7), (8,)]), build_trie([(4,), (3,), (2,), (1,)])]
PROMPTS = [(10, 11, 12), (20,), (30, 31, 32, 33, 34, 35, 36)]


def tokens_before(batch: PackedBatch, place: int) -> tuple[int, ...]:
    """The tokens that a flat position sees, itself included, in the order of their logical positions."""
    row, column = divmod(place, batch.input_ids.shape[1])
    seen = batch.visible[row, column].nonzero()[:, 0]
    seen = seen[batch.position_ids[row, seen].argsort()]
    assert batch.position_ids[row, seen].tolist() == list(range(len(seen)))
    return tuple(batch.input_ids[row, seen].tolist())


def test_every_pair_scores_its_own_tokens_behind_its_own_prompt() -> None:
    """Each edge on a pair's path predicts the next token, from a query that sees the prompt and those before it."""
    batch = pack(PROMPTS, TRIES, PAD)
    found: list[list[tuple[tuple[int, ...], int]]] = [[] for _ in range(12)]
    for edge, pair in zip(batch.path_edges.tolist(), batch.path_pairs.tolist(), strict=True):
        query = int(batch.queries[batch.edge_queries[edge]])
        found[pair].append((tokens_before(batch, query), int(batch.edge_tokens[edge])))
    labels = [
        *((1, 2, 3), (1, 4), (5, 6), (8,)),
        *((1, 4), (5, 6), (1, 2, 3, 7), (8,)),
        *((4,), (3,), (2,), (1,)),
    ]
    for pair, label in enumerate(labels):
        prompt = PROMPTS[pair // 4]
        assert found[pair] == [(prompt + label[:end], token) for end, token in enumerate(label)]


def test_the_head_is_needed_at_the_last_prompt_token_and_the_nodes_only() -> None:
    batch = pack(PROMPTS, TRIES, PAD)
    assert batch.input_ids.shape == (3, 7)
    assert batch.queries.tolist() == [3, 4, 5, 6, 9, 10, 11, 12, 13, 20]
    assert sorted(set(batch.edge_queries.tolist())) == list(range(len(batch.queries)))
    assert len(batch.edge_tokens) == sum(len(trie.edge_tokens) for trie in TRIES)


def test_a_trie_that_rows_share_gives_the_same_as_equal_ones() -> None:
    equal: list[TokenTrie] = [build_trie([(1, 2, 3), (1, 4), (5, 6), (8,)]) for _ in range(2)]
    for shared, own in zip(
        vars(pack([(10, 11), (20,)], [TRIE, TRIE], PAD)).values(),
        vars(pack([(10, 11), (20,)], equal, PAD)).values(),
        strict=True,
    ):
        assert torch.equal(shared, own)


def test_one_full_mask_without_windows(batch: PackedBatch) -> None:
    for config in ({}, {"sliding_window": None}, {"layer_types": ["full_attention"] * 2, "sliding_window": 2}):
        mask = attention_masks(model(**config), batch)
        assert isinstance(mask, torch.Tensor) and mask.dtype == torch.bool
        assert torch.equal(mask, batch.visible[:, None])


def test_a_window_counts_logical_positions(batch: PackedBatch) -> None:
    mask = attention_masks(model(sliding_window=2), batch)
    assert isinstance(mask, torch.Tensor)
    # Node 2 (position 4) sees itself and its parent (3); nodes 1 and 5 (3) see themselves and prompt token 12 (2).
    assert mask[0, 0].int().tolist()[3:] == [[0, 0, 1, 1, 0, 0], [0, 0, 1, 0, 1, 0], [0, 0, 0, 1, 0, 1]]
    assert mask[0, 0].int().tolist()[2] == [0, 1, 1, 0, 0, 0]


def test_a_window_that_the_configuration_switches_off(batch: PackedBatch) -> None:
    mask = attention_masks(model(sliding_window=2, use_sliding_window=False), batch)
    assert isinstance(mask, torch.Tensor) and torch.equal(mask, batch.visible[:, None])


def test_one_mask_for_each_layer_type(batch: PackedBatch) -> None:
    types = ["sliding_attention", "full_attention", "sliding_attention"]
    masks = attention_masks(model(sliding_window=2, layer_types=types), batch)
    assert isinstance(masks, dict) and set(masks) == {"full_attention", "sliding_attention"}
    assert torch.equal(masks["full_attention"], batch.visible[:, None])
    only_window = attention_masks(model(sliding_window=2, layer_types=["sliding_attention"]), batch)
    assert isinstance(only_window, torch.Tensor) and torch.equal(masks["sliding_attention"], only_window)
    assert not torch.equal(masks["sliding_attention"], masks["full_attention"])


@pytest.mark.parametrize("types", [["chunked_attention"], ["full_attention", "linear_attention"]])
def test_layer_types_that_no_mask_is_known_for_are_refused(batch: PackedBatch, types: list[str]) -> None:
    with pytest.raises(ValueError, match=types[-1]):
        attention_masks(model(layer_types=types), batch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_additive_masks_for_eager_attention(batch: PackedBatch, dtype: torch.dtype) -> None:
    mask = attention_masks(model("eager", dtype), batch)
    assert isinstance(mask, torch.Tensor) and mask.dtype == dtype and mask.shape == (2, 1, 6, 6)
    assert torch.equal(mask == 0, batch.visible[:, None])
    assert torch.isfinite(mask).all() and (mask[~batch.visible[:, None]] < -1e38).all()
