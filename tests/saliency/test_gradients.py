from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import cpu_offload
from torch.func import functional_call, grad, grad_and_value

from optimum_cpp.blocks import find_blocks, matrices_of
from optimum_cpp.errors import ModelError, UsageError
from optimum_cpp.saliency import Estimator, gradient_moments
from optimum_cpp.scoring import ClassifierScorer, LabelScorer, ScoreTransform, VerbalizerScorer
from tiny_models import DECODERS, ENCODERS, PROMPT, VERBALIZERS, byte_tokenizer, head_task, task, tiny_model
from tiny_models import LABELS as LABEL_NAMES

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


@pytest.mark.parametrize("name", ["gpt_neox", "falcon", "bert", "deberta_v2"])
def test_each_matrix_alone_has_the_gradients_that_it_has_among_all(name: str) -> None:
    """The graph then begins at that matrix, also where the model goes on to change its output in place (Falcon)."""
    scorer = scorer_of(name)
    expected = gradients_of(scorer)
    targets = [(label,) for label in LABELS]
    for matrix in matrices_of(find_blocks(scorer.model)):
        found = gradient_moments(scorer, [matrix], TEXTS, targets, score=NLL, batch_tokens=4096)
        assert_equal({matrix.name: found[matrix.name].numpy()}, {matrix.name: expected[matrix.name]}, 1e-6)


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


Tables = list[dict[str, Any]]
Sets = tuple[tuple[int, ...], ...]
TRUE: Sets = tuple((label,) for label in LABELS)
TOP: Sets = ((3, 0), (0, 2), (1, 3), (1, 2), (0, 3))
MIXED: Sets = ((3,), (1, 0), (3, 1, 2), (0, 1, 2, 3), (2,))
# Near the labels' mean log p, so that no softmax is saturated.
PRIOR = (-19.0, -28.5, -33.0, -6.5, -39.5, -46.0)
ENCODER_PRIOR = (-1.0, -2.0, -0.5, -1.5)


def number_of_labels(name: str) -> int:
    return 4 if is_encoder(name) else len(VERBALIZERS)


def every_label(name: str) -> Sets:
    return (tuple(range(number_of_labels(name))),) * len(TEXTS)


def log_probability(name: str, model: Any, row: int, label: int) -> Callable[[dict[str, Any]], Any]:
    """log p(y | x) of one pair alone, without padding, as a function of the parameters."""
    if is_encoder(name):
        ids = torch.tensor([ENCODER_TOKENIZER(TEXTS[row])["input_ids"]])
        return lambda parameters: functional_call(model, parameters, (ids,)).logits[0].log_softmax(-1)[label]
    prompt = PROMPT.replace("{text}", TEXTS[row])
    ids = torch.tensor([DECODER_TOKENIZER(prompt + VERBALIZERS[label])["input_ids"]])
    places = range(len(DECODER_TOKENIZER(prompt)["input_ids"]), ids.shape[1])

    def log_p(parameters: dict[str, Any]) -> Any:
        table = functional_call(model, parameters, (ids,), {"use_cache": False}).logits[0].log_softmax(-1)
        return sum(table[place - 1, ids[0, place]] for place in places)

    return log_p


def jacobians_of(name: str, model: Any) -> tuple[Any, Tables]:
    """(N, K) log p, and for each example the (K, d_out, d_in) gradients of its labels' log p, from torch.func."""
    parameters = {key: value.detach() for key, value in model.named_parameters()}
    matrices = [matrix.name for matrix in matrices_of(find_blocks(model))]
    values, gradients = [], []
    for row in range(len(TEXTS)):
        pairs = [
            grad_and_value(log_probability(name, model, row, label))(parameters)
            for label in range(number_of_labels(name))
        ]
        values.append([float(value) for _, value in pairs])
        tables = {m: np.stack([found[f"{m}.weight"].numpy() for found, _ in pairs]) for m in matrices}
        gradients.append({m: t.transpose(0, 2, 1) if name == "gpt2" else t for m, t in tables.items()})
    return np.array(values), gradients


@functools.cache
def jacobians(name: str) -> tuple[Any, Tables]:
    return jacobians_of(name, tiny_model(name, dtype=torch.float64))


def score_gradients(log_p: Any, gradients: Tables, score: ScoreTransform) -> Tables:
    """Gradients of s(x, y), by the chain rule: -J_y, or (sum_k p_k J_k - J_y) / tau for a label softmax p."""
    if score.score == "nll":
        return [{name: -table for name, table in row.items()} for row in gradients]
    scaled = (log_p - np.array(score.prior or 0.0)) / score.temperature
    p = np.exp(scaled - scaled.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    return [
        {name: (np.tensordot(p[n], table, 1) - table) / score.temperature for name, table in row.items()}
        for n, row in enumerate(gradients)
    ]


def mean_moments(gradients: Tables, targets: Sets, moment: str = "square") -> dict[str, Any]:
    """1/N sum_i 1/|Y_i| sum_{y in Y_i} of g^2 or |g|."""
    power = np.square if moment == "square" else np.abs
    return {
        name: np.mean([power(row[name][list(y)]).mean(0) for row, y in zip(gradients, targets, strict=True)], axis=0)
        for name in gradients[0]
    }


def moments_of(scorer: LabelScorer, targets: Sets, texts: Sequence[str] = TEXTS, **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = dict(score=NLL, batch_tokens=4096) | options
    found = gradient_moments(scorer, matrices_of(find_blocks(scorer.model)), texts, targets, **given)
    return {name: tensor.numpy() for name, tensor in found.items()}


def scores_for(name: str) -> list[ScoreTransform]:
    prior = ENCODER_PRIOR if is_encoder(name) else PRIOR
    return [
        NLL,
        ScoreTransform("label_nll"),
        ScoreTransform("label_nll", 3.5),
        ScoreTransform("prior_nll", 1.0, prior),
        ScoreTransform("prior_nll", 2.5, prior),
    ]


@pytest.mark.parametrize("batch_tokens", [1, 90, 4096])
@pytest.mark.parametrize("targets", ["true", "top", "mixed", "all"])
@pytest.mark.parametrize("name", ["gpt_neox", "gpt2", "bert", "deberta_v2"])
def test_candidate_labels_against_single_pairs(name: str, targets: str, batch_tokens: int) -> None:
    sets = {"true": TRUE, "top": TOP, "mixed": MIXED, "all": every_label(name)}[targets]
    log_p, gradients = jacobians(name)
    expected = mean_moments(score_gradients(log_p, gradients, NLL), sets)
    assert_equal(moments_of(scorer_of(name), sets, batch_tokens=batch_tokens), expected, 1e-9)


@pytest.mark.parametrize("batch_tokens", [1, 4096])
@pytest.mark.parametrize("targets", ["true", "mixed", "all"])
@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("name", ["gpt_neox", "gpt2", "bert"])
def test_scores_that_compare_labels(name: str, number: int, targets: str, batch_tokens: int) -> None:
    score = scores_for(name)[number]
    sets = {"true": TRUE, "mixed": MIXED, "all": every_label(name)}[targets]
    log_p, gradients = jacobians(name)
    expected = mean_moments(score_gradients(log_p, gradients, score), sets)
    found = moments_of(scorer_of(name), sets, score=score, batch_tokens=batch_tokens)
    assert_equal(found, expected, 1e-9)
    # Another score of the same labels is far away, so this can fail; an encoder's label_nll alone is its nll.
    for other in scores_for(name):
        if other != score and not (is_encoder(name) and {other.score, score.score} == {"nll", "label_nll"}):
            with pytest.raises(AssertionError):
                assert_equal(found, mean_moments(score_gradients(log_p, gradients, other), sets), 1e-2)


@pytest.mark.parametrize("name", ["gpt_neox", "bert", "deberta_v2"])
def test_absolute_moments_are_means_of_absolute_gradients(name: str) -> None:
    log_p, gradients = jacobians(name)
    for sets in (TRUE, MIXED):
        for score in (NLL, scores_for(name)[4]):
            expected = mean_moments(score_gradients(log_p, gradients, score), sets, "absolute")
            assert_equal(moments_of(scorer_of(name), sets, score=score, moment="absolute"), expected, 1e-9)


def test_length_normalised_candidate_labels() -> None:
    log_p, gradients = jacobians("gpt_neox")
    tokens = [len(DECODER_TOKENIZER(v, add_special_tokens=False)["input_ids"]) for v in VERBALIZERS]
    assert len(set(tokens)) > 1
    lengths = np.array(tokens)
    scaled = [{name: table / lengths[:, None, None] for name, table in row.items()} for row in gradients]
    for score in (NLL, scores_for("gpt_neox")[2]):
        expected = mean_moments(score_gradients(log_p / lengths, scaled, score), MIXED)
        assert_equal(moments_of(scorer_of("gpt_neox", length_normalize=True), MIXED, score=score), expected, 1e-9)


@pytest.mark.parametrize("name", ["gpt_neox", "bert"])
def test_the_order_of_rows_and_of_labels_does_not_matter(name: str) -> None:
    expected = moments_of(scorer_of(name), MIXED)
    backwards = tuple(labels[::-1] for labels in MIXED)
    assert_equal(moments_of(scorer_of(name), backwards), expected, 1e-12)
    order = (3, 0, 4, 2, 1)
    rows = tuple(MIXED[row] for row in order)
    assert_equal(moments_of(scorer_of(name), rows, [TEXTS[row] for row in order]), expected, 1e-12)


@pytest.mark.parametrize("score", [NLL, ScoreTransform("prior_nll", 2.5, PRIOR)])
def test_the_order_of_the_label_space_does_not_matter(score: ScoreTransform) -> None:
    expected = moments_of(scorer_of("gpt_neox"), MIXED, score=score)
    order = (4, 2, 0, 5, 1, 3)  # the new column n holds the old label order[n]
    own = task([LABEL_NAMES[label] for label in order], [VERBALIZERS[label] for label in order])
    model = tiny_model("gpt_neox", dtype=torch.float64)
    scorer = VerbalizerScorer(model, DECODER_TOKENIZER, own, max_text_tokens=32)
    sets = tuple(tuple(order.index(label) for label in labels) for labels in MIXED)
    prior = tuple(score.prior[label] for label in order) if score.prior else None
    moved = ScoreTransform(score.score, score.temperature, prior)
    assert_equal(moments_of(scorer, sets, score=moved), expected, 1e-11)


@pytest.mark.parametrize("batch_tokens", [1, 90, 4096])
@pytest.mark.parametrize("name", ["gpt_neox", "gpt2"])
def test_pairs_that_cannot_be_packed_are_sequences_of_their_own(name: str, batch_tokens: int) -> None:
    scorer = scorer_of(name)
    assert isinstance(scorer, VerbalizerScorer) and scorer.packed
    scorer.packed = False
    for moment in ("square", "absolute"):
        expected = mean_moments(jacobians(name)[1], MIXED, moment)
        assert_equal(moments_of(scorer, MIXED, batch_tokens=batch_tokens, moment=moment), expected, 1e-9)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable.*:FutureWarning")
@pytest.mark.parametrize("sets", [TRUE, MIXED])
def test_gradient_checkpointing_changes_nothing(sets: Sets) -> None:
    scorer = scorer_of("gpt_neox")
    expected = moments_of(scorer, sets)
    scorer.model.gradient_checkpointing_enable()
    scorer.model.train()
    assert not [m for m in scorer.model.modules() if isinstance(m, torch.nn.Dropout) and m.p > 0]
    layer = scorer.model.gpt_neox.layers[0].mlp
    runs: list[int] = []
    handle = layer.register_forward_hook(lambda *_: runs.append(1))
    assert_equal(moments_of(scorer, sets), expected, 1e-12)
    handle.remove()
    assert len(runs) > len({len(labels) for labels in sets})  # blocks did run again


def test_one_forward_pass_serves_all_labels_of_a_batch() -> None:
    scorer = scorer_of("gpt_neox")
    passes: list[int] = []
    handle = scorer.model.get_input_embeddings().register_forward_hook(lambda *_: passes.append(1))
    moments_of(scorer, every_label("gpt_neox"))
    moments_of(scorer, every_label("gpt_neox"), estimator=Estimator(3))
    handle.remove()
    assert len(passes) == 2


def test_a_mean_of_absolute_values_by_random_signs_is_refused() -> None:
    with pytest.raises(UsageError, match="exact estimator for a mean of absolute gradients, but got random signs"):
        moments_of(scorer_of("gpt_neox"), TRUE, moment="absolute", estimator=Estimator(1))


@pytest.mark.parametrize("score", [ScoreTransform("label_nll"), ScoreTransform("prior_nll", 1.0, PRIOR)])
@pytest.mark.parametrize("estimator", [Estimator(), Estimator(1)])
def test_scores_that_compare_labels_need_them_in_one_pass(score: ScoreTransform, estimator: Estimator) -> None:
    scorer = scorer_of("gpt_neox")
    assert isinstance(scorer, VerbalizerScorer)
    scorer.packed = False
    with pytest.raises(ModelError, match=rf"one pass for --saliency_score {score.score}, but .*; use nll"):
        moments_of(scorer, TRUE, score=score, estimator=estimator)


@pytest.mark.parametrize("estimator", [Estimator(), Estimator(2)])
def test_bad_gradients_of_candidate_labels(estimator: Estimator) -> None:
    scorer = scorer_of("gpt_neox")
    scorer.model.gpt_neox.layers[1].mlp.dense_4h_to_h.weight.data[3, 3] = float("nan")
    with pytest.raises(ModelError, match=r"finite gradients, but those of gpt_neox\.layers\.\d\.[a-z_.0-9]+ hold NaN"):
        moments_of(scorer, MIXED, estimator=estimator)
    scorer = scorer_of("gpt_neox")
    scorer.model.get_output_embeddings().weight.data.zero_()
    with pytest.raises(ModelError, match="every gradient is zero"):
        moments_of(scorer, MIXED, estimator=estimator)


@pytest.mark.parametrize("batch_tokens", [1, 4096])
@pytest.mark.parametrize("estimator", [Estimator(), Estimator(2)])
def test_gradients_that_are_not_finite_name_the_row(estimator: Estimator, batch_tokens: int) -> None:
    """Only the third text holds a z."""
    scorer = scorer_of("gpt_neox")
    texts = ["a thing", "over there", "a zoo", "she sold"]
    token = DECODER_TOKENIZER.convert_tokens_to_ids("z")
    scorer.model.get_input_embeddings().weight.data[token] = float("nan")
    with pytest.raises(ModelError, match="NaN or infinity on row 2 of the prune role"):
        moments_of(scorer, MIXED[:4], texts, estimator=estimator, batch_tokens=batch_tokens)


def signs_of(sketches: int, seed: int, name: str) -> Any:
    """(S, N, K) of -1 and 1: one draw for all rows and labels, before there are batches."""
    generator = torch.Generator().manual_seed(seed)
    shape = (sketches, len(TEXTS), number_of_labels(name))
    return torch.randint(0, 2, shape, generator=generator, dtype=torch.int8).numpy().astype(int) * 2 - 1


def sketch_by_hand(gradients: Tables, sets: Sets, signs: Any) -> dict[str, Any]:
    """Mean over sketches of 1/N sum over rows of (sum over labels of sign * sqrt(1 / |Y|) * g)^2."""
    found = {}
    for matrix in gradients[0]:
        totals = [
            sum(table[row, label] / np.sqrt(len(labels)) * gradients[row][matrix][label] for label in labels) ** 2
            for table in signs
            for row, labels in enumerate(sets)
        ]
        found[matrix] = np.sum(totals, axis=0) / len(signs) / len(sets)
    return found


@pytest.mark.parametrize("batch_tokens", [1, 90, 4096])
@pytest.mark.parametrize("sketches", [1, 3])
@pytest.mark.parametrize("name", ["gpt_neox", "bert", "deberta_v2"])
def test_signs_belong_to_rows_and_labels_whatever_the_batches(name: str, sketches: int, batch_tokens: int) -> None:
    """One pass for a batch, but where examples share inputs (DeBERTa), one for each of them."""
    scorer = scorer_of(name)
    rows_seen: list[int] = []
    handle = scorer.model.get_input_embeddings().register_forward_hook(
        lambda module, args, output: rows_seen.append(len(args[0]))
    )
    found = moments_of(scorer, MIXED, batch_tokens=batch_tokens, estimator=Estimator(sketches, 7))
    handle.remove()
    batches = [batch.rows for batch in scorer.target_batches(TEXTS, MIXED, batch_tokens)]
    apart = name == "deberta_v2" and batch_tokens > 1
    assert rows_seen == ([len(batches[0]), *[1] * len(TEXTS)] if apart else [len(rows) for rows in batches])
    assert_equal(found, sketch_by_hand(jacobians(name)[1], MIXED, signs_of(sketches, 7, name)), 1e-9)


def test_sketches_of_a_score_that_compares_labels() -> None:
    score = scores_for("gpt_neox")[4]
    gradients = score_gradients(*jacobians("gpt_neox"), score)
    found = moments_of(scorer_of("gpt_neox"), MIXED, score=score, estimator=Estimator(2, 5))
    assert_equal(found, sketch_by_hand(gradients, MIXED, signs_of(2, 5, "gpt_neox")), 1e-9)


def test_sketches_do_not_depend_on_the_order_of_labels_and_follow_the_seed() -> None:
    scorer = scorer_of("gpt_neox")
    first = moments_of(scorer, MIXED, estimator=Estimator(1, 3))
    backwards = tuple(labels[::-1] for labels in MIXED)
    assert_equal(moments_of(scorer, backwards, estimator=Estimator(1, 3)), first, 1e-11)
    with pytest.raises(AssertionError):
        assert_equal(moments_of(scorer, MIXED, estimator=Estimator(1, 4)), first, 1e-3)


def test_pairs_that_cannot_be_packed_are_squared_apart() -> None:
    """Each has a row of its own, so that a sketch has no cross terms at all."""
    scorer = scorer_of("gpt_neox")
    assert isinstance(scorer, VerbalizerScorer)
    scorer.packed = False
    found = moments_of(scorer, MIXED, estimator=Estimator(2, 9))
    assert_equal(found, moments_of(scorer, MIXED), 1e-9)


SEEDS = 400


@pytest.fixture(scope="module")
def small() -> tuple[LabelScorer, Any, Any]:
    """A model of 448 weights, all labels: its scorer, the exact moments, and the exact variance of one sketch.

    With a = sqrt(w) g of the labels of a row, the variance of (sum of sign * a)^2 is
    2 ((sum of a^2)^2 - sum of a^4), and rows add up.
    """
    sizes = dict(hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2)
    model = tiny_model("gpt_neox", dtype=torch.float64, **sizes)
    _, gradients = jacobians_of("gpt_neox", model)
    tables = [np.concatenate([table.reshape(6, -1) for table in row.values()], axis=1) for row in gradients]
    squares = np.stack(tables) ** 2 / 6 / len(TEXTS)  # (5, 6, 448)
    variance = 2 * (squares.sum(1) ** 2 - (squares**2).sum(1)).sum(0)
    scorer = VerbalizerScorer(model, DECODER_TOKENIZER, task(), max_text_tokens=32)
    return scorer, squares.sum((0, 1)), variance


def estimates(scorer: LabelScorer, sketches: int, seeds: Sequence[int]) -> Any:
    """(len(seeds), weights): every weight of every matrix in one row."""
    targets = every_label("gpt_neox")
    found = [moments_of(scorer, targets, estimator=Estimator(sketches, seed)) for seed in seeds]
    return np.stack([np.concatenate([array.ravel() for array in row.values()]) for row in found])


def test_the_mean_of_sketches_is_the_exact_value(small: Any) -> None:
    """Every weight's error in units of its standard error, which is known exactly.

    A sketch is skewed, and the errors of one seed's weights depend on one another, so that some may lie
    beyond 4 together: at most one in a hundred may. The sum over the weights is one number for each seed,
    and the mean of 400 such numbers lies within 4 standard errors.
    """
    scorer, exact, variance = small
    sketches = estimates(scorer, 1, range(SEEDS))
    errors = (sketches.mean(0) - exact) / np.sqrt(variance / SEEDS)
    assert errors.size == 448
    assert (np.abs(errors) > 4).mean() <= 0.01 and np.sqrt((errors**2).mean()) < 2
    for totals, expected in ((sketches.sum(1), exact.sum()), ((sketches / exact).mean(1), 1)):
        assert abs(totals.mean() - expected) < 4 * totals.std(ddof=1) / np.sqrt(SEEDS)
    # One sketch alone is far from the exact value, and a mean over 400 is not: a bias would be seen.
    assert np.median(np.abs(sketches[0] / exact - 1)) > 0.2
    assert np.median(np.abs(sketches.mean(0) / exact - 1)) < 0.03


def test_the_variance_falls_as_one_over_the_number_of_sketches(small: Any) -> None:
    """In units of the exact variance of one sketch, averaged over the weights."""
    scorer, _, variance = small
    for sketches, seeds in ((1, 300), (4, 150), (16, 60)):
        found = estimates(scorer, sketches, range(1000, 1000 + seeds)).var(0, ddof=1)
        assert (found / variance).mean() == pytest.approx(1 / sketches, rel=0.2), sketches
