from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from optimum_cpp.blocks import Block, BlockCalls, Matrix, find_blocks
from optimum_cpp.errors import ModelError
from optimum_cpp.pruning.statistics import InputStatistics, collect_statistics, token_rows
from tiny_models import tiny_model


class Feedforward(nn.Module):
    """Two matrices that read one tensor, one that reads another, and one that only some inputs reach."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.up, self.down, self.spare = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, hidden: torch.Tensor, use_spare: bool = False) -> torch.Tensor:
        output: torch.Tensor = self.down(self.gate(hidden) * self.up(hidden))
        return self.spare(output) if use_spare else output


MODULE = Feedforward()


def block_of(*names: str) -> Block:
    return Block("layers.0", MODULE, tuple(Matrix(f"layers.0.{name}", getattr(MODULE, name)) for name in names))


def call(rows: int, length: int, lengths: list[int], **kwargs: Any) -> BlockCalls:
    hidden = torch.randn(rows, length, 4, generator=torch.Generator().manual_seed(rows)) + 1
    real = torch.arange(length).expand(rows, length) >= length - torch.tensor(lengths)[:, None]
    return BlockCalls(hidden, [((), kwargs)], real)


CALLS = [call(3, 6, [6, 4, 1]), call(2, 3, [3, 2])]
REAL = np.concatenate([c.hidden[c.real].double().numpy() for c in CALLS])  # (16, 4)


@pytest.mark.parametrize("products", [False, True])
def test_sums_over_real_tokens_of_all_batches(products: bool) -> None:
    with torch.no_grad():
        found = collect_statistics(block_of("gate", "up", "down"), 0, CALLS, products=products)
        middle = np.concatenate([(MODULE.gate(c.hidden) * MODULE.up(c.hidden))[c.real].numpy() for c in CALLS])
    for name, inputs in (("gate", REAL), ("up", REAL), ("down", middle.astype(np.float64))):
        statistics = found[f"layers.0.{name}"]
        assert statistics.tokens == 16
        assert statistics.square_sums.dtype == torch.float64
        np.testing.assert_allclose(statistics.square_sums, (inputs**2).sum(0), rtol=1e-6)
        np.testing.assert_allclose(statistics.norms, np.sqrt((inputs**2).mean(0)), rtol=1e-6)
        if products:
            assert statistics.products is not None
            np.testing.assert_allclose(statistics.products, inputs.T @ inputs, rtol=1e-5)
        else:
            assert statistics.products is None


def test_matrices_that_read_one_tensor_share_their_statistics() -> None:
    with torch.no_grad():
        found = collect_statistics(block_of("gate", "up", "down"), 0, CALLS, products=True)
    assert found["layers.0.gate"] is found["layers.0.up"]
    assert found["layers.0.down"] is not found["layers.0.gate"]


def test_hooks_are_removed() -> None:
    with torch.no_grad():
        collect_statistics(block_of("gate"), 0, CALLS, products=False)
    assert not MODULE.gate._forward_hooks


def test_a_matrix_that_never_runs() -> None:
    with torch.no_grad(), pytest.raises(ModelError, match=r"layers\.0\.spare to run in its block"):
        collect_statistics(block_of("gate", "spare"), 0, CALLS, products=False)
    with torch.no_grad():
        found = collect_statistics(block_of("spare"), 0, [call(2, 3, [3, 2], use_spare=True)], products=False)
    assert found["layers.0.spare"].tokens == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_inputs_that_are_not_finite_name_the_matrix(value: float) -> None:
    broken = call(2, 3, [3, 2])
    broken.hidden[0, 1, 2] = value
    with torch.no_grad(), pytest.raises(ModelError, match=r"finite inputs of matrix layers\.0\.up"):
        collect_statistics(block_of("up"), 0, [broken], products=False)


def test_nan_on_padding_is_nobodys_business() -> None:
    padded = call(2, 3, [3, 2])
    expected = padded.hidden[padded.real].square().sum(0)
    padded.hidden[1, 0] = float("nan")
    with torch.no_grad():
        found = collect_statistics(block_of("up"), 0, [padded], products=True)
    np.testing.assert_allclose(found["layers.0.up"].square_sums, expected, rtol=1e-6)
    products = found["layers.0.up"].products
    assert products is not None and torch.isfinite(products).all()


def test_sums_of_bfloat16_inputs_keep_small_terms() -> None:
    statistics = InputStatistics(0, torch.zeros(1, dtype=torch.float64), torch.zeros(1, 1))
    inputs = torch.cat([torch.full((1, 1), 16.0), torch.full((999, 1), 0.125)]).bfloat16()
    for part in inputs.split(100):
        statistics.add(part)
    assert statistics.square_sums.item() == 256 + 999 / 64
    assert statistics.products is not None and statistics.products.item() == 256 + 999 / 64
    assert statistics.norms.item() == pytest.approx(np.sqrt((256 + 999 / 64) / 1000))


def test_token_rows() -> None:
    real = torch.ones(2, 3, dtype=torch.bool)
    inputs = torch.arange(24.0).reshape(2, 3, 4)
    flat = token_rows(inputs, real)
    assert flat is not None and torch.equal(flat, inputs.reshape(6, 4))
    flat = token_rows(inputs.reshape(6, 4), real)
    assert flat is not None and torch.equal(flat, inputs.reshape(6, 4))
    assert token_rows(torch.zeros(1, 16, 4), real) is None
    assert token_rows(torch.zeros(3, 2, 4), real) is None
    assert token_rows(torch.zeros(1, 6, 4), real) is None
    assert token_rows(torch.zeros(5, 4), real) is None


@pytest.mark.parametrize("length", [10, 16])
def test_the_table_of_relative_positions_is_no_token(length: int) -> None:
    """DeBERTa-v2 sends 16 positions through query and key, as many as a row may have tokens."""
    model = tiny_model("deberta_v2")
    block = find_blocks(model)[0]
    real = torch.ones(1, length, dtype=torch.bool)
    hidden = torch.randn(1, length, 32, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(1, 1, length, length)
    arguments = ((mask,), {"rel_embeddings": model.deberta.encoder.get_rel_embedding()})
    with torch.no_grad():
        found = collect_statistics(block, 0, [BlockCalls(hidden, [arguments], real)], products=False)
    for kind in ("query", "key", "value"):
        statistics = found[f"deberta.encoder.layer.0.attention.self.{kind}_proj"]
        assert statistics.tokens == length
        np.testing.assert_allclose(statistics.square_sums, hidden[0].double().square().sum(0), rtol=1e-6)
