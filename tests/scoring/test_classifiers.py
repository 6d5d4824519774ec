from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import ByT5Tokenizer

from optimum_cpp.data.tasks import ClassificationTask
from optimum_cpp.errors import ModelError
from optimum_cpp.scoring import ClassifierScorer
from optimum_cpp.scoring.classifiers import head_columns
from tiny_models import ENCODERS, LABELS, TEXTS, byte_tokenizer, head_task, tiny_model

ARCHITECTURES = [
    (name, kind) for name in ENCODERS for kind in ("sdpa", "eager") if (name, kind) != ("deberta_v2", "sdpa")
]
TOKENIZER = byte_tokenizer(opening="<s>", closing="</s>")
HEAD = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2", 3: "LABEL_3"}


def reference(model: Any, texts: Any = TEXTS) -> Any:
    """Log-softmax in float64 of the model's own logits, one row at a time and without padding."""
    rows = []
    for text in texts:
        with torch.no_grad():
            logits = model(torch.tensor([TOKENIZER(text)["input_ids"]])).logits[0].double().numpy()
        rows.append(logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max())
    return np.array(rows)


@pytest.mark.parametrize("name, attention", ARCHITECTURES)
def test_scores_are_the_log_softmax_of_the_models_own_logits(name: str, attention: str) -> None:
    model = tiny_model(name, attention=attention)
    expected = reference(model)
    assert np.abs(expected - expected[0]).max() > 0.1  # texts differ by more than any rounding
    for batch_tokens in (1, 64, 4096):
        scorer = ClassifierScorer(model, TOKENIZER, head_task(), batch_tokens=batch_tokens)
        scores = scorer.log_probabilities(TEXTS)
        assert scores.dtype == np.float64
        np.testing.assert_allclose(scores, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ENCODERS)
def test_the_tokenizers_padding_side_changes_nothing(name: str) -> None:
    model = tiny_model(name)
    left = byte_tokenizer(opening="<s>", closing="</s>", padding_side="left")
    scores = ClassifierScorer(model, left, head_task()).log_probabilities(TEXTS)
    np.testing.assert_allclose(scores, reference(model), atol=1e-4, rtol=0)


def test_the_prompt_surrounds_the_text_and_only_the_text_is_truncated() -> None:
    model = tiny_model("bert")
    asked = ClassificationTask("tiny", LABELS[:4], (), "Topic of {text}?")
    scorer = ClassifierScorer(model, TOKENIZER, asked, max_text_tokens=4)
    scores = scorer.log_probabilities(["abcdefg", "ab"])
    np.testing.assert_allclose(scores, reference(model, ["Topic of abcd?", "Topic of ab?"]), atol=1e-4, rtol=0)
    assert scorer.truncated == 1


@pytest.mark.parametrize("name", ENCODERS)
def test_target_batches_hold_each_row_with_its_labels(name: str) -> None:
    model = tiny_model(name)
    scorer = ClassifierScorer(model, TOKENIZER, head_task())
    targets = [(3,), (1, 0), (0,), (2, 3), (1, 2)]
    expected = reference(model)
    seen: list[int] = []
    for batch in scorer.target_batches(TEXTS, targets, 100):
        seen += batch.rows
        assert batch.targets == tuple(targets[row] for row in batch.rows)
        assert len({len(labels) for labels in batch.targets}) == 1
        lengths = [len(TOKENIZER(TEXTS[row])["input_ids"]) for row in batch.rows]
        assert batch.real.sum(1).tolist() == lengths
        with torch.no_grad():
            log_p = scorer.target_log_probabilities(batch)
        wanted = [expected[row, label] for row in batch.rows for label in targets[row]]
        assert log_p.dtype == torch.float64 and log_p.numpy() == pytest.approx(wanted, abs=1e-4)
    assert sorted(seen) == list(range(len(TEXTS)))


def test_labelled_batches_of_at_most_so_many_rows() -> None:
    scorer = ClassifierScorer(tiny_model("bert"), TOKENIZER, head_task())
    for max_rows, sizes in ((None, [5]), (2, [2, 2, 1]), (1, [1] * 5)):
        batches = list(scorer.labelled_batches(TEXTS, [0] * 5, 4096, max_rows=max_rows))
        assert [len(batch.rows) for batch in batches] == sizes


def test_columns_follow_the_names_of_the_head() -> None:
    names = {0: "album", 1: "figure", 2: "a", 3: "film"}
    model = tiny_model("bert", id2label=names)
    scorer = ClassifierScorer(model, TOKENIZER, head_task(("film", "figure", "album", "a")))
    assert scorer.columns == [3, 1, 0, 2]
    scores = scorer.log_probabilities(TEXTS)
    np.testing.assert_allclose(scores, reference(model)[:, [3, 1, 0, 2]], atol=1e-4, rtol=0)
    batch = next(scorer.target_batches(TEXTS[:1], [(2,)], 100))
    assert scorer.target_log_probabilities(batch).item() == pytest.approx(reference(model)[0, 0], abs=1e-4)


def test_a_head_without_names_is_taken_in_order() -> None:
    config = SimpleNamespace(num_labels=4, id2label=HEAD)
    assert head_columns(config, ("film", "figure", "album", "a")) == [0, 1, 2, 3]


def test_a_head_of_another_size() -> None:
    config = SimpleNamespace(num_labels=4, id2label=HEAD)
    with pytest.raises(ModelError, match="have the data's 3 labels, but it has 4"):
        head_columns(config, ("film", "figure", "album"))


def test_a_label_that_the_head_does_not_know() -> None:
    config = SimpleNamespace(num_labels=2, id2label={0: "Film", 1: "album"})
    with pytest.raises(ModelError, match="know label 'film', but its labels are Film, album"):
        head_columns(config, ("album", "film"))


def test_softmax_in_float32_of_a_bfloat16_model() -> None:
    model = tiny_model("bert", dtype=torch.bfloat16)
    scores = ClassifierScorer(model, TOKENIZER, head_task()).log_probabilities(TEXTS)
    assert np.exp(scores).sum(1) == pytest.approx(np.ones(5), abs=1e-6)


def test_softmax_in_float64_of_a_float64_model() -> None:
    model = tiny_model("bert", dtype=torch.float64)
    scores = ClassifierScorer(model, TOKENIZER, head_task()).log_probabilities(TEXTS)
    np.testing.assert_allclose(scores, reference(model), rtol=1e-12)


def test_nan_logits_name_the_row() -> None:
    model = tiny_model("bert")
    model.get_input_embeddings().weight.data[TOKENIZER.convert_tokens_to_ids("z")] = float("nan")
    scorer = ClassifierScorer(model, TOKENIZER, head_task())
    with pytest.raises(ModelError, match="finite label scores, but row 1 has nan"):
        scorer.log_probabilities(["a longer text", "zoo", "b"])


def test_a_slow_tokenizer_is_refused() -> None:
    with pytest.raises(ModelError, match=r"fast tokenizer, .* but got ByT5Tokenizer"):
        ClassifierScorer(tiny_model("bert"), ByT5Tokenizer(), head_task())


def test_a_head_has_no_verbalizers() -> None:
    scorer = ClassifierScorer(tiny_model("bert"), TOKENIZER, head_task())
    assert scorer.label_token_ids() == ((), (), (), ())
    assert scorer.labels == LABELS[:4]
    assert scorer.describe() == "classification head of 4 classes"
