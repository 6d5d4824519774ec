from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import cpu_offload
from torch.func import functional_call, grad

from optimum_cpp.blocks import find_blocks, matrices_of
from optimum_cpp.errors import ModelError
from optimum_cpp.saliency import gradient_moments
from optimum_cpp.scoring import ClassifierScorer, LabelScorer, ScoreTransform, VerbalizerScorer
from tiny_models import DECODERS, ENCODERS, PROMPT, VERBALIZERS, byte_tokenizer, head_task, task, tiny_model

TEXTS = ("the quick brown fox", "a thing", "x", "she sold the thinnest shells", "over there")
LABELS = (3, 0, 2, 1, 2)
NLL = ScoreTransform("nll")
DECODER_TOKENIZER = byte_tokenizer(opening="<s>")
ENCODER_TOKENIZER = byte_tokenizer(opening="<s>", closing="</s>")
# These compute in the model's dtype throughout; others normalise or take softmaxes in float32.
PRECISE = ("gpt2", "gpt_neox", "opt", "phi", "bert", "roberta", "distilbert", "deberta_v2", "modernbert", "albert")
ARCHITECTURES = (*DECODERS, *ENCODERS, "albert")
# Eager attention takes the softmax of float64 masks in float32, where the padding of a batch overflows.
DTYPES = {"gemma2": torch.float32}


def is_encoder(name: str) -> bool:
    return name in ENCODERS or name == "albert"


def scorer_of(name: str, length_normalize: bool = False, **changes: Any) -> LabelScorer:
    model = tiny_model(name, dtype=DTYPES.get(name, torch.float64), **changes)
    if is_encoder(name):
        return ClassifierScorer(model, ENCODER_TOKENIZER, head_task())
    return VerbalizerScorer(model, DECODER_TOKENIZER, task(), max_text_tokens=32, length_normalize=length_normalize)


def gradients_of(scorer: LabelScorer, batch_tokens: int = 4096, rows: Sequence[int] = range(5)) -> dict[str, Any]:
    found = gradient_moments(
        scorer,
        matrices_of(find_blocks(scorer.model)),
        [TEXTS[row] for row in rows],
        [(LABELS[row],) for row in rows],
        score=NLL,
        batch_tokens=batch_tokens,
    )
    return {name: tensor.numpy() for name, tensor in found.items()}


def negative_log_likelihood(name: str, model: Any, row: int, normalize: bool) -> Callable[[dict[str, Any]], Any]:
    """s(x, y) of one example alone, without padding, as a function of the parameters."""
    if is_encoder(name):
        ids = torch.tensor([ENCODER_TOKENIZER(TEXTS[row])["input_ids"]])
        return lambda parameters: -functional_call(model, parameters, (ids,)).logits[0].log_softmax(-1)[LABELS[row]]
    prompt = PROMPT.replace("{text}", TEXTS[row])
    ids = torch.tensor([DECODER_TOKENIZER(prompt + VERBALIZERS[LABELS[row]])["input_ids"]])
    start = len(DECODER_TOKENIZER(prompt)["input_ids"])

    def score(parameters: dict[str, Any]) -> Any:
        log_p = functional_call(model, parameters, (ids,), {"use_cache": False}).logits[0].log_softmax(-1)
        terms = torch.stack([log_p[place - 1, ids[0, place]] for place in range(start, ids.shape[1])])
        return -(terms.mean() if normalize else terms.sum())

    return score


def example_gradients(name: str, model: Any, normalize: bool = False) -> list[dict[str, Any]]:
    """Gradients of each example's score by matrix name, (d_out, d_in), from torch.func."""
    conv1d = name == "gpt2"
    matrices = [matrix.name for matrix in matrices_of(find_blocks(model))]
    parameters = {key: value.detach() for key, value in model.named_parameters()}
    gradients = []
    for row in range(len(TEXTS)):
        found = grad(negative_log_likelihood(name, model, row, normalize))(parameters)
        tensors = {matrix: found[f"{matrix}.weight"].numpy() for matrix in matrices}
        gradients.append({matrix: array.T if conv1d else array for matrix, array in tensors.items()})
    return gradients


@functools.cache
def expected_of(name: str, normalize: bool = False) -> dict[str, Any]:
    """The mean over examples of the squared gradients."""
    gradients = example_gradients(name, tiny_model(name, dtype=DTYPES.get(name, torch.float64)), normalize)
    return {matrix: np.mean([g[matrix] ** 2 for g in gradients], axis=0) for matrix in gradients[0]}


def assert_equal(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert np.abs(found[name] - array).max() <= tolerance * array.max(), name


@pytest.mark.parametrize("batch_tokens", [1, 90, 4096])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_per_example_gradients_are_squared_before_the_mean(name: str, batch_tokens: int) -> None:
    """Against torch.func, one example at a time, for any batches and the padding in them."""
    tolerance = 1e-9 if name in PRECISE else 1e-4
    assert_equal(gradients_of(scorer_of(name), batch_tokens), expected_of(name), tolerance)


def test_length_normalised_scores() -> None:
    expected = expected_of("gpt_neox", True)
    assert_equal(gradients_of(scorer_of("gpt_neox", length_normalize=True)), expected, 1e-9)
    with pytest.raises(AssertionError):
        assert_equal(expected, expected_of("gpt_neox"), 0.1)


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_squaring_the_mean_gradient_would_be_something_else(name: str) -> None:
    gradients = example_gradients(name, tiny_model(name, dtype=torch.float64))
    squared_mean = {m: np.mean([g[m] for g in gradients], axis=0) ** 2 for m in gradients[0]}
    found = gradients_of(scorer_of(name))
    for matrix, array in squared_mean.items():
        assert array.sum() < 0.7 * found[matrix].sum()


@pytest.mark.parametrize("changes", [{"pos_att_type": ["c2p"]}, {"pos_att_type": ["p2c"]}, {"share_att_key": False}])
def test_other_kinds_of_relative_attention(changes: dict[str, Any]) -> None:
    """With one kind only, a matrix is called on the table of positions without any use of the result."""
    gradients = example_gradients("deberta_v2", tiny_model("deberta_v2", dtype=torch.float64, **changes))
    expected = {matrix: np.mean([g[matrix] ** 2 for g in gradients], axis=0) for matrix in gradients[0]}
    assert_equal(gradients_of(scorer_of("deberta_v2", **changes)), expected, 1e-9)


def rows_of_passes(scorer: LabelScorer, batch_tokens: int = 4096) -> list[int]:
    """How many rows each forward pass of the saliency had."""
    rows: list[int] = []
    handle = scorer.model.get_input_embeddings().register_forward_pre_hook(
        lambda module, args: rows.append(len(args[0]))
    )
    gradients_of(scorer, batch_tokens)
    handle.remove()
    return rows


@pytest.mark.parametrize("name, rows", [("gpt2", [5]), ("bert", [5]), ("deberta_v2", [5, 1, 1, 1, 1, 1])])
def test_rows_are_taken_one_by_one_only_where_examples_share_inputs(
    name: str, rows: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert rows_of_passes(scorer_of(name)) == rows
    said = "one example at a time: deberta.encoder.layer.0.attention.self.query_proj has inputs that" in caplog.text
    assert said == (name == "deberta_v2")


def test_starting_over_forgets_what_single_rows_had_added() -> None:
    scorer = scorer_of("deberta_v2")
    assert rows_of_passes(scorer, 30)[:3] == [1, 1, 2]  # two rows are done before the first batch of two
    assert_equal(gradients_of(scorer, 30), expected_of("deberta_v2"), 1e-9)


def test_positions_of_their_own_need_no_single_rows() -> None:
    assert rows_of_passes(scorer_of("deberta_v2", share_att_key=False)) == [5]


def test_a_matrix_that_reads_some_tokens_only() -> None:
    """As an expert does: its share of the tokens of a batch belongs to no row in particular."""
    model = tiny_model("gpt_neox", dtype=torch.float64)
    expert = model.gpt_neox.layers[1].mlp

    def route(hidden: torch.Tensor) -> torch.Tensor:
        chosen = hidden[..., 0] > 0
        output = torch.zeros_like(hidden)
        output[chosen] = expert.dense_4h_to_h(expert.act(expert.dense_h_to_4h(hidden[chosen])))
        return output

    expert.forward = route
    gradients = example_gradients("gpt_neox", model)
    expected = {matrix: np.mean([g[matrix] ** 2 for g in gradients], axis=0) for matrix in gradients[0]}
    scorer = VerbalizerScorer(model, DECODER_TOKENIZER, task(), max_text_tokens=32)
    assert_equal(gradients_of(scorer), expected, 1e-9)


@pytest.mark.parametrize("name", ["gpt2", "bert", "deberta_v2"])
def test_one_example_more_changes_the_mean_by_its_own_square(name: str) -> None:
    scorer = scorer_of(name)
    four, one, five = (gradients_of(scorer, rows=rows) for rows in ((0, 1, 2, 3), (4,), range(5)))
    assert_equal({matrix: (4 * four[matrix] + one[matrix]) / 5 for matrix in four}, five, 1e-9)


@pytest.mark.parametrize("name", ["llama", "bert"])
@pytest.mark.parametrize("dtype, result", [(torch.float32, torch.float32), (torch.bfloat16, torch.float32)])
def test_sums_are_kept_in_float32_or_better(name: str, dtype: torch.dtype, result: torch.dtype) -> None:
    scorer = scorer_of(name)
    scorer.model.to(dtype)
    matrices = matrices_of(find_blocks(scorer.model))
    targets = [(label,) for label in LABELS]
    found = gradient_moments(scorer, matrices, TEXTS, targets, score=NLL, batch_tokens=4096)
    for matrix, array in expected_of(name).items():
        assert found[matrix].dtype == result
        tolerance = 1e-4 if dtype == torch.float32 else 0.3
        assert np.abs(found[matrix].numpy() - array).max() <= tolerance * array.max()


@pytest.mark.parametrize("name", ["llama", "deberta_v2"])
def test_the_model_is_left_as_it_was(name: str) -> None:
    scorer = scorer_of(name)
    parameters = list(scorer.model.parameters())
    for parameter in parameters[::3]:
        parameter.requires_grad_(False)
    flags = [parameter.requires_grad for parameter in parameters]
    before = [parameter.clone() for parameter in parameters]
    gradients_of(scorer)
    assert [parameter.requires_grad for parameter in parameters] == flags
    assert all(parameter.grad is None for parameter in parameters)
    assert all(torch.equal(a, b) for a, b in zip(parameters, before, strict=True))
    assert not any(module._forward_hooks or module._backward_hooks for module in scorer.model.modules())


def test_flags_come_back_after_an_error_too() -> None:
    scorer = scorer_of("llama")
    handle = scorer.model.lm_head.register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("broken")))
    with pytest.raises(RuntimeError, match="broken"):
        gradients_of(scorer)
    handle.remove()
    assert all(parameter.requires_grad for parameter in scorer.model.parameters())
    assert not any(module._forward_hooks for module in scorer.model.modules())


@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad])
def test_gradients_are_taken_whatever_the_caller_switched_off(context: Any) -> None:
    with context():
        assert_equal(gradients_of(scorer_of("gpt2")), expected_of("gpt2"), 1e-9)


def test_a_score_that_does_not_depend_on_the_weights() -> None:
    scorer = scorer_of("llama")
    scorer.model.lm_head.weight.data.zero_()
    with pytest.raises(ModelError, match="every gradient is zero"):
        gradients_of(scorer)


def test_gradients_that_are_not_finite_name_the_matrix() -> None:
    scorer = scorer_of("llama")
    scorer.model.model.layers[1].mlp.up_proj.weight.data[3, 3] = float("nan")
    with pytest.raises(ModelError, match=r"finite gradients, but those of model\.layers\.\d\.[a-z._]*_proj hold NaN"):
        gradients_of(scorer)


def test_offloaded_weights_are_refused() -> None:
    scorer = scorer_of("llama")
    cpu_offload(scorer.model, execution_device=torch.device("cpu"))
    with pytest.raises(ModelError, match=r"every weight in memory, but .+ is offloaded"):
        gradients_of(scorer)


def test_weights_on_the_meta_device_are_refused() -> None:
    scorer = scorer_of("llama")
    scorer.model.model.layers[1].mlp.up_proj.to("meta")
    with pytest.raises(ModelError, match=r"but model\.layers\.1\.mlp\.up_proj is offloaded"):
        gradients_of(scorer)
