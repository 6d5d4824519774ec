from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from optimum_cpp.errors import ModelError
from optimum_cpp.scoring import VerbalizerScorer, verbalizers
from optimum_cpp.scoring.packing import PackedBatch, attention_masks, pack
from tiny_models import (
    DECODERS,
    LABELS,
    PROMPT,
    SLIDING,
    TEXTS,
    VERBALIZERS,
    byte_tokenizer,
    task,
    tiny_model,
)

ARCHITECTURES = [(name, kind) for name in DECODERS for kind in ("sdpa", "eager") if (name, kind) != ("gemma2", "sdpa")]
TOKENIZER = byte_tokenizer(opening="<s>")
TOLERANCE = 1e-4
LENGTHS = np.array([len(TOKENIZER(v, add_special_tokens=False)["input_ids"]) for v in VERBALIZERS])


def reference(model: Any, texts: Any = TEXTS, prompt: str = PROMPT, normalize: bool = False) -> Any:
    """One forward pass for each text and label, without padding; log-softmax in float64."""
    scores = np.empty((len(texts), len(VERBALIZERS)))
    for row, text in enumerate(texts):
        before = TOKENIZER(prompt.replace("{text}", text))["input_ids"]
        for column, verbalizer in enumerate(VERBALIZERS):
            ids = TOKENIZER(prompt.replace("{text}", text) + verbalizer)["input_ids"]
            assert ids[: len(before)] == before
            with torch.no_grad():
                logits = model(torch.tensor([ids]), use_cache=False).logits[0].double().numpy()  # (S, V)
            logits -= logits.max(1, keepdims=True)
            log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            terms = [log_p[place - 1, ids[place]] for place in range(len(before), len(ids))]
            scores[row, column] = np.mean(terms) if normalize else np.sum(terms)
    return scores


def scorer_of(model: Any, max_text_tokens: int = 64, **options: Any) -> VerbalizerScorer:
    return VerbalizerScorer(model, TOKENIZER, task(), max_text_tokens=max_text_tokens, **options)


@functools.cache
def model_and_reference(name: str, attention: str) -> tuple[Any, Any]:
    model = tiny_model(name, attention=attention)
    return model, reference(model)


@pytest.mark.parametrize("name, attention", ARCHITECTURES)
def test_packed_scores_equal_one_pass_for_each_label(name: str, attention: str) -> None:
    model, expected = model_and_reference(name, attention)
    assert np.ptp(expected, axis=0).min() > 0.1  # texts differ by more than any rounding
    scorer = scorer_of(model)
    assert scorer.packed
    for batch_tokens in (1, 150, 4096):
        scorer.batch_tokens = batch_tokens
        scores = scorer.log_probabilities(TEXTS)
        assert scores.dtype == np.float64
        np.testing.assert_allclose(scores, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
def test_the_cached_prompt_gives_the_same_scores(name: str) -> None:
    model, expected = model_and_reference(name, "sdpa")
    scorer = scorer_of(model)
    scorer.packed = False
    np.testing.assert_allclose(scorer.log_probabilities(TEXTS), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", DECODERS)
def test_target_batches_score_the_wanted_labels(name: str, packed: bool) -> None:
    model, expected = model_and_reference(name, "sdpa")
    scorer = scorer_of(model)
    scorer.packed = packed
    targets = [(3,), (5, 0), (0, 1, 2, 3, 4, 5), (2,), (4, 5)]
    for batch_tokens in (1, 150, 4096):
        found = np.full(expected.shape, np.nan)
        for batch in scorer.target_batches(TEXTS, targets, batch_tokens):
            with torch.no_grad():
                log_p = iter(scorer.target_log_probabilities(batch).tolist())
            for row, labels in zip(batch.rows, batch.targets, strict=True):
                assert set(labels) <= set(targets[row])
                found[row, list(labels)] = [next(log_p) for _ in labels]
        wanted = np.array([[label in labels for label in range(6)] for labels in targets])
        np.testing.assert_allclose(found[wanted], expected[wanted], atol=TOLERANCE, rtol=0)
        assert np.isnan(found[~wanted]).all()


def test_only_the_wanted_labels_are_packed() -> None:
    """One label's last token is predicted, never read; rows of as many labels share a batch."""
    model, _ = model_and_reference("llama", "sdpa")
    scorer = scorer_of(model)
    targets = [(0,), (1,), (2,), (3,), (0, 3)]
    batches = list(scorer.target_batches(TEXTS, targets, 4096))
    assert [sorted(batch.rows) for batch in batches] == [[0, 1, 2, 3], [4]]
    for place, row in enumerate(batches[0].rows):
        prompt = TOKENIZER(PROMPT.replace("{text}", TEXTS[row]))["input_ids"]
        assert int(batches[0].real[place].sum()) == len(prompt) + LENGTHS[targets[row][0]] - 1


def siblings_visible(model: Any, batch: PackedBatch) -> Any:
    """Every node sees the nodes before it, as in an ordinary causal mask."""
    causal = torch.ones(batch.visible.shape[1:], dtype=torch.bool).tril()
    shown = batch.visible | (causal & batch.real[:, None, :] & batch.real[:, :, None])
    return attention_masks(model, replace(batch, visible=shown))


def padding_visible(model: Any, batch: PackedBatch) -> Any:
    shown = batch.visible | (batch.real[:, :, None] & ~batch.real[:, None, :])
    return attention_masks(model, replace(batch, visible=shown))


def without_window(model: Any, batch: PackedBatch) -> Any:
    masks = attention_masks(model, batch)
    if isinstance(masks, dict):
        return dict.fromkeys(masks, masks["full_attention"])
    window, model.config.sliding_window = model.config.sliding_window, None
    masks = attention_masks(model, batch)
    model.config.sliding_window = window
    return masks


def with_a_wider_window(model: Any, batch: PackedBatch) -> Any:
    model.config.sliding_window += 1
    masks = attention_masks(model, batch)
    model.config.sliding_window -= 1
    return masks


BROKEN_MASKS = [
    *((name, siblings_visible) for name in DECODERS),
    *((name, broken) for name in SLIDING for broken in (without_window, with_a_wider_window)),
]


# Padding has position 0, which windows in every layer hide from the end of the prompt anyway.
@pytest.mark.parametrize(
    "name, broken",
    [*BROKEN_MASKS, *((name, padding_visible) for name in DECODERS if name not in ("mistral", "phi3_sliding"))],
)
def test_a_wrong_mask_would_show(name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, expected = model_and_reference(name, "sdpa")
    scorer = scorer_of(model)
    monkeypatch.setattr(verbalizers, "attention_masks", broken)
    assert np.abs(scorer.log_probabilities(TEXTS) - expected).max() > 100 * TOLERANCE


@pytest.mark.parametrize("name, broken", BROKEN_MASKS)
def test_a_wrong_mask_is_noticed(name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbalizers, "attention_masks", broken)
    model, expected = model_and_reference(name, "sdpa")
    scorer = scorer_of(model)
    assert not scorer.packed and "behind a cached prompt" in scorer.describe()
    np.testing.assert_allclose(scorer.log_probabilities(TEXTS), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
def test_wrong_positions_would_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, expected = model_and_reference(name, "sdpa")
    scorer = scorer_of(model)

    def one_after_another(*args: Any) -> PackedBatch:
        batch = pack(*args)
        return replace(batch, position_ids=(batch.real.long().cumsum(1) - 1).clamp(min=0))

    monkeypatch.setattr(verbalizers, "pack", one_after_another)
    assert np.abs(scorer.log_probabilities(TEXTS) - expected).max() > 100 * TOLERANCE
    assert not scorer_of(model).packed


def test_a_model_with_its_own_kind_of_mask_falls_back() -> None:
    model = tiny_model("bloom")
    scorer = scorer_of(model)
    assert not scorer.packed
    np.testing.assert_allclose(scorer.log_probabilities(TEXTS), reference(model), atol=TOLERANCE, rtol=0)


def test_layers_of_an_unknown_type_fall_back() -> None:
    model = tiny_model("llama")
    model.config.layer_types = ["chunked_attention"] * 2
    assert not scorer_of(model).packed


def test_a_window_that_only_long_texts_feel_is_noticed() -> None:
    """GPT-Neo applies its window to the packed order, whatever mask it is given."""
    model = tiny_model("gpt_neo")
    assert scorer_of(model, max_text_tokens=20).packed
    scorer = scorer_of(model, max_text_tokens=60)
    assert not scorer.packed
    texts = [text + "and so on " * 6 for text in TEXTS]
    shortened = [TOKENIZER.decode(TOKENIZER(text, add_special_tokens=False)["input_ids"][:60]) for text in texts]
    np.testing.assert_allclose(scorer.log_probabilities(texts), reference(model, shortened), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("packed", [True, False])
def test_length_normalised_scores_are_means_over_tokens(name: str, packed: bool) -> None:
    model, summed = model_and_reference(name, "sdpa")
    expected = reference(model, normalize=True)
    scorer = scorer_of(model, length_normalize=True)
    assert scorer.packed
    scorer.packed = packed
    np.testing.assert_allclose(expected, summed / LENGTHS, rtol=1e-9)
    np.testing.assert_allclose(scorer.log_probabilities(TEXTS), expected, atol=TOLERANCE, rtol=0)
    labels = [3, 5, 0, 2, 4]
    for batch in scorer.target_batches(TEXTS, [(label,) for label in labels], 4096):
        with torch.no_grad():
            found = scorer.target_log_probabilities(batch).numpy()
        np.testing.assert_allclose(found, [expected[row, labels[row]] for row in batch.rows], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2", "opt"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_the_tokenizers_padding_side_changes_nothing(name: str, side: str) -> None:
    model, expected = model_and_reference(name, "sdpa")
    scorer = VerbalizerScorer(model, byte_tokenizer(opening="<s>", padding_side=side), task())
    np.testing.assert_allclose(scorer.log_probabilities(TEXTS), expected, atol=TOLERANCE, rtol=0)


def test_a_tokenizer_without_padding_token() -> None:
    model, expected = model_and_reference("llama", "sdpa")
    tokenizer = byte_tokenizer(opening="<s>")
    tokenizer.pad_token = tokenizer.eos_token = None
    scorer = VerbalizerScorer(model, tokenizer, task())
    np.testing.assert_allclose(scorer.log_probabilities(TEXTS), expected, atol=TOLERANCE, rtol=0)


def test_labels_of_one_token() -> None:
    """A trie without nodes: only the last prompt position is read."""
    model = tiny_model("llama")
    scorer = VerbalizerScorer(model, TOKENIZER, task(("a", "f", "x"), (" a", " f", " fi")))
    assert scorer.packed and scorer.trie.num_queries == 1
    with torch.no_grad():
        ids = torch.tensor([TOKENIZER(PROMPT.replace("{text}", "x"))["input_ids"]])
        logits = model(ids).logits[0, -1].double().log_softmax(-1)
    expected = logits[TOKENIZER.convert_tokens_to_ids(["Ġa", "Ġf", "Ġfi"])].numpy()
    np.testing.assert_allclose(scorer.log_probabilities(["x"])[0], expected, atol=TOLERANCE, rtol=0)


def test_only_the_text_is_truncated() -> None:
    model, _ = model_and_reference("llama", "sdpa")
    scorer = scorer_of(model, max_text_tokens=4)
    scores = scorer.log_probabilities(["abcdefg", "ab"])
    np.testing.assert_allclose(scores, reference(model, ["abcd", "ab"]), atol=TOLERANCE, rtol=0)
    assert scorer.truncated == 1
    scorer.log_probabilities(["abcdefg"])
    assert scorer.truncated == 2


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """Shapes of the token ids of every forward pass of the cached llama."""
    model, _ = model_and_reference("llama", "sdpa")
    shapes: list[tuple[int, ...]] = []
    handle = model.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    yield shapes
    handle.remove()


def test_batches_stay_within_the_token_budget(passes: list[tuple[int, ...]]) -> None:
    model, _ = model_and_reference("llama", "sdpa")
    scorer = scorer_of(model, batch_tokens=150)
    passes.clear()
    scorer.log_probabilities(TEXTS)
    assert all(rows == 1 or rows * width <= 150 for rows, width in passes)
    assert sum(rows for rows, _ in passes) == len(TEXTS) > len(passes)


def test_logits_that_the_model_computes_stay_within_a_budget(
    passes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, expected = model_and_reference("llama", "sdpa")
    monkeypatch.setattr(verbalizers, "plain_head", lambda model, inputs: None)
    scorer = scorer_of(model)
    queries = scorer.trie.num_queries
    passes.clear()
    monkeypatch.setattr(verbalizers, "LOGITS_BUDGET", 2 * 4 * 280 * queries)
    scores = scorer.log_probabilities(TEXTS)
    assert [rows for rows, _ in passes] == [2, 2, 1]
    np.testing.assert_allclose(scores, expected, atol=TOLERANCE, rtol=0)


def test_labelled_batches_are_the_joint_encoding() -> None:
    model, _ = model_and_reference("llama", "sdpa")
    scorer = scorer_of(model)
    labels = [3, 5, 0, 2, 4]
    for max_rows, sizes in ((None, [5]), (2, [2, 2, 1]), (1, [1] * 5)):
        batches = list(scorer.labelled_batches(TEXTS, labels, 4096, max_rows=max_rows))
        assert [len(batch.rows) for batch in batches] == sizes
        for batch in batches:
            for place, row in enumerate(batch.rows):
                ids = TOKENIZER(PROMPT.replace("{text}", TEXTS[row]) + VERBALIZERS[labels[row]])["input_ids"]
                real = batch.real[place]
                assert batch.inputs["input_ids"][place, real].tolist() == ids
                assert batch.inputs["position_ids"][place, real].tolist() == list(range(len(ids)))
                assert torch.equal(batch.inputs["attention_mask"][place].bool(), real)


def test_softmax_in_float32_of_a_bfloat16_model() -> None:
    model = tiny_model("llama", dtype=torch.bfloat16)
    scorer = VerbalizerScorer(model, TOKENIZER, task(("a", "f"), (" a", " f")))
    seen = []
    handle = model.lm_head.register_forward_hook(lambda module, args, output: seen.append(output))
    scores = scorer.log_probabilities(["x"])
    handle.remove()
    logits = seen[0][0]
    assert logits.dtype == torch.bfloat16
    expected = logits.double().log_softmax(-1)[TOKENIZER.convert_tokens_to_ids(["Ġa", "Ġf"])]
    np.testing.assert_allclose(scores[0], expected.numpy(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("packed", [True, False])
def test_softmax_in_float64_of_a_float64_model(packed: bool) -> None:
    model = tiny_model("gpt_neox", dtype=torch.float64)  # computes in the model's own dtype throughout
    scorer = scorer_of(model)
    scorer.packed = packed
    np.testing.assert_allclose(scorer.log_probabilities(TEXTS), reference(model), atol=1e-9, rtol=0)


def test_nan_weights_are_refused_at_once() -> None:
    model = tiny_model("llama")
    model.model.layers[1].mlp.up_proj.weight.data[0, 0] = float("nan")
    with pytest.raises(ModelError, match="NaN or infinite logits on a plain text"):
        scorer_of(model)


@pytest.mark.parametrize("packed", [True, False])
def test_nan_logits_name_the_row(packed: bool) -> None:
    model = tiny_model("llama")
    model.get_input_embeddings().weight.data[TOKENIZER.convert_tokens_to_ids("z")] = float("nan")
    scorer = scorer_of(model)
    scorer.packed = packed
    with pytest.raises(ModelError, match="finite label scores, but row 1 has nan"):
        scorer.log_probabilities(["a longer text", "zoo", "b"])


def test_what_a_scorer_says_of_itself() -> None:
    model, _ = model_and_reference("llama", "sdpa")
    scorer = scorer_of(model)
    assert scorer.labels == LABELS
    assert [len(tokens) for tokens in scorer.label_token_ids()] == LENGTHS.tolist()
    prefixes = {tokens[:end] for tokens in scorer.label_token_ids() for end in range(1, len(tokens))}
    assert scorer.describe().startswith(f"6 verbalizers packed as a trie of {len(prefixes)} nodes")


def test_verbalizers_that_begin_others_are_said_so() -> None:
    scorer = VerbalizerScorer(tiny_model("llama"), byte_tokenizer(), task())
    assert "in 2 pairs" in scorer.describe() and "('a', 'album')" in scorer.describe()
    distinct = task(("film", "album"), (" film", " album"))
    assert "begins" not in VerbalizerScorer(tiny_model("llama"), byte_tokenizer(), distinct).describe()
