"""A small Llama classifier made on the spot: a tokenizer, a model built from a config, its training.

Everything is float32 and plain PyTorch, and reads no file.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn.functional import cross_entropy
from tqdm.auto import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ..errors import DataError, UsageError

_BOS, _EOS, _PAD = "<s>", "</s>", "<pad>"
# Weight of the language-model loss on the text. Most words are several tokens, and predicting the text is
# what teaches the model to read them; it also fills the weights, so that pruning has something to break.
_TEXT_WEIGHT = 2.0
_WINDOW = 20  # steps that the reported losses are averaged over


@dataclass(frozen=True)
class TrainingSummary:
    """What a training did.

    Attributes:
        steps: optimizer steps.
        tokens: real (unpadded) tokens seen, repetitions counted.
        seconds: wall-clock time.
        first_loss: mean negative log-likelihood of a label token in nats, over the first 20 steps.
        last_loss: the same over the last 20 steps.
    """

    steps: int
    tokens: int
    seconds: float
    first_loss: float
    last_loss: float


def build_tokenizer(texts: Sequence[str], *, vocab_size: int = 1024) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer that puts `<s>` before every text.

    Its alphabet holds all bytes, so that it can also read what the texts do not contain. Words are
    split off with the space before them, so that the tokens of a prompt stay the same when a space and
    a label follow.

    Args:
        texts: what to train on; hold the prompt's and the labels' words in them to make these short.
        vocab_size: most tokens, the three special ones and the 256 bytes included.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[_BOS, _EOS, _PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_BOS} $A", special_tokens=[(_BOS, tokenizer.token_to_id(_BOS))]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token=_BOS, eos_token=_EOS, pad_token=_PAD
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast, *, layers: int, hidden: int, ffn: int, seed: int
) -> LlamaForCausalLM:
    """An untrained Llama with heads of 16 channels, two query heads per key head, and tied embeddings.

    Raises:
        UsageError: `hidden` is not a multiple of 32.
    """
    if hidden % 32:
        raise UsageError(f"Expected argument `hidden` to be a multiple of 32, but got {hidden}.")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 16,
        num_key_value_heads=hidden // 32,
        max_position_embeddings=512,
        initializer_range=hidden**-0.5 / 2,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def train_model(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    texts: Sequence[str],
    labels: Sequence[int],
    verbalizers: Sequence[str],
    prompt: str,
    *,
    steps: int,
    batch_rows: int = 32,
    learning_rate: float = 2e-3,
    seed: int = 0,
) -> TrainingSummary:
    """Train in place on the prompt, a space and the label's verbalizer, with AdamW and a cosine schedule.

    The loss is the mean negative log-likelihood of a label token plus twice that of any other token. It
    runs on one thread: matrices this small gain little from more, several threads wait for each other on a
    busy machine, and the weights do not depend on the number of cores. The steps end it, not the clock, so
    equal arguments give equal weights on the same kind of processor.

    Args:
        texts: the texts to train on.
        labels: for each text the index of its verbalizer.
        verbalizers: the words of each label.
        prompt: the prompt, with `{text}`.

    Raises:
        DataError: there are fewer texts than one batch holds.
    """
    if len(texts) < batch_rows:
        raise DataError(f"Expected at least {batch_rows} texts to train on, but got {len(texts)}.")
    start = time.perf_counter()
    rows = _encode_rows(tokenizer, texts, [verbalizers[label] for label in labels], prompt)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    batches = islice(_draw_batches(rows, batch_rows, np.random.default_rng(seed)), steps)
    losses: list[float] = []
    tokens = 0
    model.train()
    with _one_thread(), tqdm(batches, desc="Training the dense model", total=steps, unit="step") as progress:
        for batch in progress:
            label_loss, text_loss = _losses(model, batch)
            torch.autograd.backward(label_loss + _TEXT_WEIGHT * text_loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(label_loss.item())
            tokens += sum(len(row.ids) for row in batch)
            progress.set_postfix(label_loss=f"{np.mean(losses[-_WINDOW:]):.3f}", refresh=False)
    model.train(False)
    return TrainingSummary(
        steps=steps,
        tokens=tokens,
        seconds=time.perf_counter() - start,
        first_loss=float(np.mean(losses[:_WINDOW])),
        last_loss=float(np.mean(losses[-_WINDOW:])),
    )


@dataclass(frozen=True)
class _Row:
    """The tokens of one training row; those from `label_start` on are the label's."""

    ids: tuple[int, ...]
    label_start: int


def _encode_rows(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], verbalizers: Sequence[str], prompt: str
) -> list[_Row]:
    prompts = [prompt.replace("{text}", text) for text in texts]
    starts = tokenizer(prompts)["input_ids"]
    joined = tokenizer([f"{text} {words}" for text, words in zip(prompts, verbalizers, strict=True)])["input_ids"]
    return [_Row(tuple(ids), len(start)) for ids, start in zip(joined, starts, strict=True)]


def _draw_batches(rows: Sequence[_Row], batch_rows: int, rng: np.random.Generator) -> Iterator[list[_Row]]:
    """Endless shuffled epochs; rows of like length share a batch, which saves most of the padding."""
    span = 16 * batch_rows
    while True:
        order = rng.permutation(len(rows))
        batches: list[list[_Row]] = []
        for first in range(0, len(order), span):
            near = sorted((rows[i] for i in order[first : first + span]), key=lambda row: len(row.ids))
            chunks = [near[i : i + batch_rows] for i in range(0, len(near), batch_rows)]
            batches += [chunk for chunk in chunks if len(chunk) == batch_rows]
        yield from (batches[i] for i in rng.permutation(len(batches)))


def _losses(model: LlamaForCausalLM, batch: Sequence[_Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean negative log-likelihoods of the batch's label tokens and of its other tokens."""
    longest = max(len(row.ids) for row in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)  # (B, T), the real tokens first
    for i, row in enumerate(batch):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
    position = torch.arange(1, longest)
    label_start = torch.tensor([[row.label_start] for row in batch])  # (B, 1)
    end = torch.tensor([[len(row.ids)] for row in batch])
    is_label = (position >= label_start) & (position < end)  # (B, T - 1)
    is_text = position < label_start
    # No attention mask: the filler stands on the right, where causal attention never looks.
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]  # (B, T - 1, V)
    nll = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view_as(is_label)
    return nll[is_label].mean(), nll[is_text].mean()


def _rate(step: int, steps: int) -> float:
    """Linear warm-up over the first twentieth, then half a cosine down to nothing."""
    warmup = max(1, steps // 20)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch on one thread inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
