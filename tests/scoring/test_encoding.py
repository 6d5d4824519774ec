from __future__ import annotations

from typing import Any

import pytest
from tokenizers import normalizers
from transformers import ByT5Tokenizer

from optimum_cpp.errors import DataError, ModelError, UsageError
from optimum_cpp.scoring.encoding import PromptEncoder, truncate_texts
from tiny_models import LABELS, PROMPT, VERBALIZERS, byte_tokenizer, task


def encoder(tokenizer: Any = None, max_text_tokens: int = 64, **changes: Any) -> PromptEncoder:
    return PromptEncoder(tokenizer or byte_tokenizer(), task(**changes), max_text_tokens)


def spelled(tokenizer: Any, tokens: tuple[int, ...]) -> str:
    return str(tokenizer.decode(list(tokens)))


def test_label_tokens_are_those_of_the_joint_encoding() -> None:
    tokenizer = byte_tokenizer()
    found = encoder(tokenizer).label_tokens
    assert [spelled(tokenizer, tokens) for tokens in found] == list(VERBALIZERS)
    assert [len(tokens) for tokens in found] == [3, 5, 5, 1, 6, 7]
    prompt = PROMPT.replace("{text}", "any")
    for tokens, verbalizer in zip(found, VERBALIZERS, strict=True):
        assert tokenizer(prompt + verbalizer)["input_ids"] == [*tokenizer(prompt)["input_ids"], *tokens]


def test_prompts_hold_the_whole_template() -> None:
    tokenizer = byte_tokenizer(opening="<s>")
    encoded = encoder(tokenizer).encode(["a {text} of {labels}", "é"])
    assert [spelled(tokenizer, prompt) for prompt in encoded.prompts] == [
        "<s>Text: a {text} of {labels}\nCategory:",
        "<s>Text: é\nCategory:",
    ]
    assert encoded.truncated == 0


@pytest.mark.parametrize("closing", ["</s>", "</s> </s>"])
def test_tokens_that_close_a_sequence_are_left_out(closing: str) -> None:
    plain, closed = byte_tokenizer(opening="<s>"), byte_tokenizer(opening="<s>", closing=closing)
    count = len(closing.split())
    assert closed("x")["input_ids"][-count:] == [closed.eos_token_id] * count
    assert encoder(closed).label_tokens == encoder(plain).label_tokens
    assert encoder(closed).encode(["some text"]) == encoder(plain).encode(["some text"])


def test_only_the_text_is_truncated() -> None:
    tokenizer = byte_tokenizer(opening="<s>")
    encoded = encoder(tokenizer, 5).encode(["abcdefgh", "abcde", "ab"])
    assert [spelled(tokenizer, prompt) for prompt in encoded.prompts] == [
        "<s>Text: abcde\nCategory:",
        "<s>Text: abcde\nCategory:",
        "<s>Text: ab\nCategory:",
    ]
    assert encoded.truncated == 1


def test_truncation_counts_tokens_not_characters() -> None:
    assert truncate_texts(byte_tokenizer(), ["the thing"], 3) == (["the "], 1)  # th, e, space
    assert truncate_texts(byte_tokenizer(), ["éé"], 2) == (["é"], 1)


def test_a_cut_inside_a_character_keeps_the_character() -> None:
    assert truncate_texts(byte_tokenizer(), ["éé"], 3) == (["éé"], 1)


@pytest.mark.parametrize("texts, row", [(["", "b"], 0), (["a", "b", ""], 2)])
def test_an_empty_text_is_named(texts: list[str], row: int) -> None:
    with pytest.raises(DataError, match=f"at least one token, but row {row} is ''"):
        encoder().encode(texts)


def test_a_text_that_the_tokenizer_drops_is_named() -> None:
    tokenizer = byte_tokenizer(normalizer=normalizers.Replace("☃", ""))
    with pytest.raises(DataError, match="row 1 is '☃'"):
        truncate_texts(tokenizer, ["a", "☃"], 4)


def test_a_verbalizer_without_tokens() -> None:
    tokenizer = byte_tokenizer(normalizer=normalizers.Replace("☃", ""))
    with pytest.raises(UsageError, match="label 'snow' to have a token, but it has none"):
        encoder(tokenizer, labels=("film", "snow"), verbalizers=(" film", "☃"))


def test_two_labels_with_equal_tokens() -> None:
    tokenizer = byte_tokenizer(normalizer=normalizers.Lowercase())
    with pytest.raises(UsageError, match="'film' and 'FILM' have the same tokens"):
        encoder(tokenizer, labels=("film", "album", "FILM"), verbalizers=(" film", " album", " FILM"))


def test_a_token_that_spans_the_border() -> None:
    with pytest.raises(UsageError, match=r"with label 'a' a token spans the border of 'Text: text\\nCategory: '"):
        encoder(prompt="Text: {text}\nCategory: ", labels=("zoo", "a"), verbalizers=("zoo", "a"))


def test_a_trailing_space_that_merges_with_nothing_is_allowed() -> None:
    tokenizer = byte_tokenizer(merges=())
    found = encoder(tokenizer, prompt="Text: {text}\nCategory: ", labels=("zoo", "a"), verbalizers=("zoo", "a"))
    assert [spelled(tokenizer, tokens) for tokens in found.label_tokens] == ["zoo", "a"]


def test_a_text_that_merges_with_a_label_is_named() -> None:
    tokenizer = byte_tokenizer(merges=(("x", "a"),), split_words=False)
    free = encoder(tokenizer, prompt="{text}", labels=("a", "b"), verbalizers=("a", "b"))
    assert free.encode(["xy"]).prompts == ((*tokenizer("xy")["input_ids"],),)
    with pytest.raises(UsageError, match=r"label 'a' to have the same tokens .* but not behind row 1 \('box'\)"):
        free.encode(["boy", "box"])


def test_a_slow_tokenizer_is_refused() -> None:
    with pytest.raises(ModelError, match=r"fast tokenizer, .* but got ByT5Tokenizer"):
        PromptEncoder(ByT5Tokenizer(), task(), 8)


def test_labels_follow_the_task() -> None:
    reordered = encoder(labels=LABELS[::-1], verbalizers=VERBALIZERS[::-1])
    assert reordered.label_tokens == encoder().label_tokens[::-1]
