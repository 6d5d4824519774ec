"""The quickstart's tokenizer, model and training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from optimum_cpp.errors import DataError, UsageError
from optimum_cpp.quickstart.corpus import GeneratedCorpus, generate_corpus
from optimum_cpp.quickstart.tiny_model import TrainingSummary, build_model, build_tokenizer, train_model

PROMPT = "{text}\nCategory:"
STRANGE = "Zoë's ½ naïve café —  ПРИВЕТ 你好 🙂\n\tend "


@pytest.fixture(scope="module")
def corpus() -> GeneratedCorpus:
    return generate_corpus(600, seed=5)


@pytest.fixture(scope="module")
def tokenizer(corpus: GeneratedCorpus) -> PreTrainedTokenizerFast:
    labels = [f"Category: {name}" for name in corpus.label_names] * 150
    return build_tokenizer([*corpus.texts, *labels], vocab_size=512)


def small_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> LlamaForCausalLM:
    return build_model(tokenizer, layers=2, hidden=32, ffn=64, seed=seed)


def train(
    tokenizer: PreTrainedTokenizerFast, corpus: GeneratedCorpus, **options: int
) -> tuple[LlamaForCausalLM, TrainingSummary]:
    model = small_model(tokenizer)
    arguments = (corpus.texts, corpus.labels, corpus.label_names, PROMPT)
    return model, train_model(model, tokenizer, *arguments, **{"steps": 24, "learning_rate": 1e-2, **options})


def test_texts_survive_the_round_trip(tokenizer: PreTrainedTokenizerFast, corpus: GeneratedCorpus) -> None:
    for text in (*corpus.texts[:50], STRANGE):
        ids = tokenizer(text)["input_ids"]
        assert ids[0] == tokenizer.bos_token_id and ids.count(tokenizer.bos_token_id) == 1
        assert tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) == text


def test_tokens_of_a_prompt_stay_when_a_label_follows(
    tokenizer: PreTrainedTokenizerFast, corpus: GeneratedCorpus
) -> None:
    for text in (*corpus.texts[:20], STRANGE):
        prompt = PROMPT.replace("{text}", text)
        ids = tokenizer(prompt)["input_ids"]
        for name in corpus.label_names:
            assert tokenizer(f"{prompt} {name}")["input_ids"][: len(ids)] == ids


def test_label_words_are_whole_tokens(tokenizer: PreTrainedTokenizerFast, corpus: GeneratedCorpus) -> None:
    tokens = {name: tokenizer.tokenize(" " + name) for name in corpus.label_names}
    assert all(len(tokens[name]) == len(name.split()) for name in tokens)
    assert tokens["river boats"][0] == tokens["river fishing"][0]


def test_special_tokens_differ(tokenizer: PreTrainedTokenizerFast) -> None:
    assert len({tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}) == 3


def test_the_saved_tokenizer_is_the_same(
    tokenizer: PreTrainedTokenizerFast, corpus: GeneratedCorpus, tmp_path: Path
) -> None:
    tokenizer.save_pretrained(tmp_path)
    small_model(tokenizer).config.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    texts = [*corpus.texts[:20], STRANGE]
    assert again(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert again.pad_token_id == tokenizer.pad_token_id


def test_the_seed_decides_the_first_weights(tokenizer: PreTrainedTokenizerFast) -> None:
    before = torch.get_rng_state()
    first, same, other = (small_model(tokenizer, seed).state_dict() for seed in (0, 0, 1))
    name = "model.layers.0.mlp.up_proj.weight"
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not torch.equal(first[name], other[name])
    assert first[name].dtype == torch.float32
    assert torch.equal(torch.get_rng_state(), before)


def test_attention_is_grouped_and_embeddings_are_tied(tokenizer: PreTrainedTokenizerFast) -> None:
    model = small_model(tokenizer)
    assert model.config.num_key_value_heads * 2 == model.config.num_attention_heads
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_forty_steps_reduce_the_loss(tokenizer: PreTrainedTokenizerFast, corpus: GeneratedCorpus) -> None:
    threads = torch.get_num_threads()
    model, summary = train(tokenizer, corpus, steps=40)
    assert summary.last_loss < summary.first_loss - 1
    assert summary.steps == 40 and summary.tokens > 40 * 32 * 20
    assert not model.training
    assert torch.get_num_threads() == threads


def test_equal_trainings_give_equal_weights(tokenizer: PreTrainedTokenizerFast, corpus: GeneratedCorpus) -> None:
    (first, one), (second, two) = (train(tokenizer, corpus, steps=3) for _ in range(2))
    assert (one.first_loss, one.tokens) == (two.first_loss, two.tokens)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_another_seed_trains_on_other_batches(tokenizer: PreTrainedTokenizerFast, corpus: GeneratedCorpus) -> None:
    assert train(tokenizer, corpus, steps=2)[1].first_loss != train(tokenizer, corpus, steps=2, seed=1)[1].first_loss


def test_too_few_texts_are_an_error(tokenizer: PreTrainedTokenizerFast, corpus: GeneratedCorpus) -> None:
    with pytest.raises(DataError, match="at least 32 texts"):
        train(tokenizer, corpus.rows(0, 31))


def test_a_width_that_heads_do_not_divide_is_an_error(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(UsageError, match="`hidden`"):
        build_model(tokenizer, layers=1, hidden=48, ffn=64, seed=0)
