"""From texts to prompt tokens and label tokens, as one joint encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..data.tasks import ClassificationTask
from ..errors import DataError, ModelError, UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class EncodedPrompts:
    """Prompts of some texts as token ids.

    Attributes:
        prompts: for each text the tokens of its prompt, special tokens of the tokenizer included.
        truncated: how many texts were longer than `max_text_tokens`.
    """

    prompts: tuple[tuple[int, ...], ...]
    truncated: int


def truncate_texts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_text_tokens: int
) -> tuple[list[str], int]:
    """Cut each text after `max_text_tokens` of its own tokens; returns the texts and how many were cut.

    Raises:
        DataError: a text that has no token at all; the row is named.
    """
    encoded = tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True)
    shortened: list[str] = []
    truncated = 0
    for row, (text, offsets) in enumerate(zip(texts, encoded["offset_mapping"], strict=True)):
        if not offsets:
            raise DataError(f"Expected every text to have at least one token, but row {row} is {text!r}.")
        if len(offsets) > max_text_tokens:
            text = text[: offsets[max_text_tokens - 1][1]]
            truncated += 1
        shortened.append(text)
    return shortened, truncated


class PromptEncoder:
    """Encodes prompts and verbalizers jointly, so that no token spans the border unnoticed.

    Args:
        tokenizer: a fast tokenizer (character offsets are needed to truncate only the text).
        task: prompt and verbalizers.
        max_text_tokens: longest text, in tokens of its own.

    Raises:
        ModelError: the tokenizer is not a fast one.
        UsageError: a verbalizer that tokenises to nothing, two labels with equal tokens, or a prompt
            whose end merges with the verbalizer into one token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, task: ClassificationTask, max_text_tokens: int) -> None:
        if not tokenizer.is_fast:
            raise ModelError(
                f"Expected a fast tokenizer, which reports character offsets, but got {type(tokenizer).__name__}; "
                "save the model with its tokenizer.json."
            )
        self.tokenizer = tokenizer
        self.task = task
        self.max_text_tokens = max_text_tokens
        self.label_tokens = self._label_tokens()

    def _label_tokens(self) -> tuple[tuple[int, ...], ...]:
        probe = self.task.render("text")
        prompt = self._ids([probe])[0]
        tokens = self._continuations(probe, prompt)
        seen: dict[tuple[int, ...], str] = {}
        for label, sequence in zip(self.task.labels, tokens, strict=True):
            if not sequence:
                raise UsageError(f"Expected the verbalizer of label {label!r} to have a token, but it has none.")
            if sequence in seen:
                raise UsageError(
                    f"Expected every label to have its own verbalizer, but {seen[sequence]!r} and {label!r} "
                    "have the same tokens."
                )
            seen[sequence] = label
        return tokens

    def _ids(self, texts: list[str]) -> list[tuple[int, ...]]:
        encodings = self.tokenizer(texts, add_special_tokens=True)["input_ids"]
        return [tuple(ids) for ids in encodings]

    def _continuations(self, prompt_text: str, prompt: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Each label's tokens: what the joint encoding has behind the prompt's own tokens."""
        joint = self._ids([prompt_text + verbalizer for verbalizer in self.task.verbalizers])
        # A tokenizer that closes every sequence ([SEP], </s>) closes the prompt's encoding too.
        closing = self._closing_tokens()
        body = prompt[: len(prompt) - closing]
        continuations = []
        for label, ids in zip(self.task.labels, joint, strict=True):
            ids = ids[: len(ids) - closing]
            if ids[: len(body)] != body:
                raise UsageError(
                    f"Expected the prompt to end where a token ends, but with label {label!r} a token spans the "
                    f"border of {prompt_text[-40:]!r}; end the prompt without a space and begin verbalizers with one."
                )
            continuations.append(ids[len(body) :])
        return tuple(continuations)

    def _closing_tokens(self) -> int:
        """How many special tokens the tokenizer appends at the end of a sequence."""
        with_special = self.tokenizer("text", return_special_tokens_mask=True)["special_tokens_mask"]
        closing = 0
        while closing < len(with_special) and with_special[-1 - closing]:
            closing += 1
        return closing

    def encode(self, texts: Sequence[str]) -> EncodedPrompts:
        """Prompt tokens of each text, checked against the joint encoding with every label.

        Raises:
            DataError: an empty text.
            UsageError: a text for which a label's tokens differ from those of the other texts.
        """
        shortened, truncated = truncate_texts(self.tokenizer, texts, self.max_text_tokens)
        rendered = [self.task.render(text) for text in shortened]
        closing = self._closing_tokens()
        prompts = [ids[: len(ids) - closing] for ids in self._ids(rendered)]
        self._check_joint(rendered, prompts, closing)
        return EncodedPrompts(tuple(prompts), truncated)

    def _check_joint(self, rendered: list[str], prompts: list[tuple[int, ...]], closing: int) -> None:
        for verbalizer, tokens, label in zip(self.task.verbalizers, self.label_tokens, self.task.labels, strict=True):
            joint = self._ids([text + verbalizer for text in rendered])
            for row, (ids, prompt) in enumerate(zip(joint, prompts, strict=True)):
                if ids[: len(ids) - closing] != prompt + tokens:
                    raise UsageError(
                        f"Expected label {label!r} to have the same tokens behind every prompt, but not behind row "
                        f"{row} ({rendered[row][-40:]!r}); let the prompt end with fixed words, as in "
                        "'{text}\\nCategory:'."
                    )
