from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from optimum_cpp.scoring import head as head_module
from optimum_cpp.scoring.head import edge_log_probabilities, plain_head
from tiny_models import DECODERS, tiny_model

VOCABULARY, WIDTH, POSITIONS = 50, 7, 9
# Not in the order of the positions; position 8 scores one token twice; 1, 4 and 6 score none.
QUERIES = torch.tensor([8, 0, 3, 8, 2, 0, 7, 5, 8, 3])
TOKENS = torch.tensor([4, 49, 0, 4, 17, 3, 17, 8, 11, 30])
# One position at a time, two, a ragged four, all.
CHUNKS = [1, 2 * 4 * VOCABULARY, 4 * 4 * VOCABULARY, 2**24]


def head_and_hidden(dtype: torch.dtype, bias: bool = False) -> tuple[nn.Linear, torch.Tensor]:
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY, bias=bias, dtype=dtype).requires_grad_(False)
    return head, 3 * torch.randn(POSITIONS, WIDTH, dtype=dtype)


def reference(head: nn.Linear, hidden: torch.Tensor) -> torch.Tensor:
    """Through the log-softmax of all logits."""
    return head(hidden).log_softmax(-1)[QUERIES, TOKENS]


def gradient_of(function: Any, hidden: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    hidden = hidden.clone().requires_grad_(True)
    function(hidden).backward(weights)
    assert hidden.grad is not None
    return hidden.grad


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bytes_", CHUNKS)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_values_equal_those_of_all_logits(
    dtype: torch.dtype, tolerance: float, bytes_: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "CHUNK_BYTES", bytes_)
    head, hidden = head_and_hidden(dtype, bias)
    found = edge_log_probabilities(hidden, head, QUERIES, TOKENS)
    assert found.dtype == dtype and found.shape == (10,)
    assert relative_error(found, reference(head, hidden)) < tolerance


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bytes_", CHUNKS)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_gradients_equal_those_through_all_logits(
    dtype: torch.dtype, tolerance: float, bytes_: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "CHUNK_BYTES", bytes_)
    head, hidden = head_and_hidden(dtype, bias)
    weights = torch.randn(10, dtype=dtype, generator=torch.Generator().manual_seed(1))
    weights[[1, 4, 8]] = 0  # position 2 then has no gradient at all, position 0 one of two
    found = gradient_of(lambda h: edge_log_probabilities(h, head, QUERIES, TOKENS), hidden, weights)
    expected = gradient_of(lambda h: reference(head, h), hidden, weights)
    assert relative_error(found, expected) < tolerance
    assert not found[[1, 2, 4, 6]].any() and found[[0, 3, 5, 7, 8]].any(1).all()


def test_finite_differences_agree_with_the_gradient() -> None:
    head, hidden = head_and_hidden(torch.float64)
    hidden.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda h: edge_log_probabilities(h, head, QUERIES, TOKENS), (hidden,))


def test_gradients_that_cancel_at_a_position_still_reach_it() -> None:
    """Their sum is zero, so the softmax drops out, and the two tokens' rows of the head remain."""
    head, hidden = head_and_hidden(torch.float64)
    weights = torch.zeros(10, dtype=torch.float64)
    weights[[2, 9]] = torch.tensor([1.0, -1.0], dtype=torch.float64)
    found = gradient_of(lambda h: edge_log_probabilities(h, head, QUERIES, TOKENS), hidden, weights)
    torch.testing.assert_close(found[3], head.weight[0] - head.weight[30])
    assert not found[[0, 1, 2, 4, 5, 6, 7, 8]].any()


def test_a_gradient_of_zero_for_everything() -> None:
    head, hidden = head_and_hidden(torch.float64)
    found = gradient_of(lambda h: edge_log_probabilities(h, head, QUERIES, TOKENS), hidden, torch.zeros(10).double())
    assert found.shape == hidden.shape and not found.any()


def test_a_graph_that_is_kept_serves_several_backward_passes() -> None:
    head, hidden = head_and_hidden(torch.float64)
    hidden.requires_grad_(True)
    found = edge_log_probabilities(hidden, head, QUERIES, TOKENS)
    for edge in (0, 6):
        (gradient,) = torch.autograd.grad(found[edge], hidden, retain_graph=True)
        (expected,) = torch.autograd.grad(reference(head, hidden)[edge], hidden)
        assert relative_error(gradient, expected) < 1e-13


def test_bfloat16_logits_are_normalised_in_float32() -> None:
    head, hidden = head_and_hidden(torch.bfloat16)
    found = edge_log_probabilities(hidden, head, QUERIES, TOKENS)
    expected = head(hidden).float().log_softmax(-1)[QUERIES, TOKENS]
    assert found.dtype == torch.float32 and relative_error(found, expected) < 1e-6
    weights = torch.ones(10)
    gradient = gradient_of(lambda h: edge_log_probabilities(h, head, QUERIES, TOKENS), hidden, weights)
    wide, wide_hidden = head_and_hidden(torch.bfloat16)
    exact = gradient_of(lambda h: reference(wide.float(), h), wide_hidden.float(), weights)
    assert gradient.dtype == torch.bfloat16 and relative_error(gradient.float(), exact) < 0.02


def test_logits_of_one_chunk_exist_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    head, hidden = head_and_hidden(torch.float32)
    rows: list[int] = []
    head.register_forward_hook(lambda module, args, output: rows.append(len(output)))
    monkeypatch.setattr(head_module, "CHUNK_BYTES", 4 * 4 * VOCABULARY)
    weights = torch.zeros(10)
    weights[[2, 7]] = 1
    gradient_of(lambda h: edge_log_probabilities(h, head, QUERIES, TOKENS), hidden, weights)
    assert rows == [4, 4, 1, 2]  # forward over all nine positions, backward over the two with a gradient


def inputs() -> dict[str, torch.Tensor]:
    ids = torch.arange(3, 15)[None]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "position_ids": torch.arange(12)[None]}


@pytest.mark.parametrize("name", DECODERS)
def test_a_head_is_plain_where_the_logits_are_its_output(name: str) -> None:
    model = tiny_model(name)
    found = plain_head(model, inputs())
    assert found is (None if name == "gemma2" else model.get_output_embeddings())
    assert not model.get_output_embeddings()._forward_hooks


def test_gemma2_without_its_cap_is_plain() -> None:
    model = tiny_model("gemma2", final_logit_softcapping=None)
    assert plain_head(model, inputs()) is model.lm_head


@pytest.mark.parametrize("change", ["scale", "shift", "cap"])
def test_logits_changed_behind_the_head_are_noticed(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap is so high that it changes no logit of ordinary size."""
    model = tiny_model("llama")
    forward = model.forward

    def changed(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        if change == "scale":
            output.logits = output.logits * 0.5
        elif change == "shift":
            output.logits = output.logits + torch.arange(280.0)
        else:
            output.logits = output.logits.clamp(-500, 500)
        return output

    monkeypatch.setattr(model, "forward", changed)
    assert plain_head(model, inputs()) is None


def test_hidden_states_changed_before_the_head_are_noticed() -> None:
    model = tiny_model("llama")
    model.lm_head.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    assert plain_head(model, inputs()) is None


def test_a_head_that_is_no_plain_linear_layer() -> None:
    model = tiny_model("llama")
    model.lm_head = nn.Sequential(model.lm_head)
    assert plain_head(model, inputs()) is None


def test_cohere_scales_its_logits() -> None:
    import transformers

    config = transformers.CohereConfig(
        vocab_size=280,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        pad_token_id=2,
        bos_token_id=0,
        eos_token_id=1,
        logit_scale=0.0625,
    )
    assert plain_head(transformers.CohereForCausalLM(config).eval(), inputs()) is None
