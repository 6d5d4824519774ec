"""Tiny models of every supported architecture with random weights, and byte-level tokenizers for them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from optimum_cpp.data.tasks import ClassificationTask

SPECIALS = ("<s>", "</s>", "<pad>")
MERGES = (("Ġ", "a"), ("Ġ", "f"), ("Ġf", "i"), ("t", "h"))
WINDOW = 8

LABELS = ("film", "figure", "album", "a", "plant", "plants")
# One token, several, a common prefix, one that begins another, and one whose first token is another's all.
VERBALIZERS = (" film", " figure", " album", " a", " plant", " plants")
PROMPT = "Text: {text}\nCategory:"
TEXTS = (
    "the quick brown fox",
    "a thing",
    "x",
    "she sold the thinnest shells by the sea shore, then left",
    "over there, the thorn and the path",
)


def task(
    labels: Sequence[str] = LABELS, verbalizers: Sequence[str] = VERBALIZERS, prompt: str = PROMPT
) -> ClassificationTask:
    return ClassificationTask("tiny", tuple(labels), tuple(verbalizers), prompt)


def head_task(labels: Sequence[str] = LABELS[:4]) -> ClassificationTask:
    return ClassificationTask("tiny", tuple(labels), (), "{text}")


def byte_tokenizer(
    *,
    closing: str = "",
    opening: str = "",
    merges: Sequence[tuple[str, str]] = MERGES,
    split_words: bool = True,
    normalizer: normalizers.Normalizer | None = None,
    padding_side: str = "right",
) -> tf.PreTrainedTokenizerFast:
    """Bytes and a few merges; `opening` and `closing` hold the special tokens around every sequence."""
    vocabulary = [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split_words)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if opening or closing:
        used = [(token, vocabulary.index(token)) for token in sorted({*opening.split(), *closing.split()})]
        tokenizer.post_processor = processors.TemplateProcessing(f"{opening} $A {closing}".strip(), special_tokens=used)
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        padding_side=padding_side,
        model_input_names=["input_ids", "attention_mask"],
    )


_SIZES: dict[str, Any] = dict(
    vocab_size=280,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=512,
    pad_token_id=2,
)
_GROUPED = _SIZES | dict(num_key_value_heads=2)
_DECODER_CONFIGS: dict[str, Any] = {
    "llama": lambda: tf.LlamaConfig(**_GROUPED),
    "qwen2": lambda: tf.Qwen2Config(**_GROUPED),
    "qwen2_sliding": lambda: tf.Qwen2Config(
        **_GROUPED, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "qwen3": lambda: tf.Qwen3Config(**_GROUPED, head_dim=8),
    "mistral": lambda: tf.MistralConfig(**_GROUPED, sliding_window=WINDOW),
    "gemma": lambda: tf.GemmaConfig(**_GROUPED, head_dim=8),
    "gemma2": lambda: tf.Gemma2Config(**_GROUPED, head_dim=8, sliding_window=WINDOW),
    "gemma3": lambda: tf.Gemma3TextConfig(
        **_GROUPED,
        head_dim=8,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "phi": lambda: tf.PhiConfig(**_SIZES),
    "phi3": lambda: tf.Phi3Config(**_GROUPED, eos_token_id=1, sliding_window=None),
    "phi3_sliding": lambda: tf.Phi3Config(**_GROUPED, eos_token_id=1, sliding_window=WINDOW),
    "gpt_neox": lambda: tf.GPTNeoXConfig(**_SIZES),
    "gpt2": lambda: tf.GPT2Config(
        vocab_size=280, n_embd=32, n_inner=48, n_layer=2, n_head=4, n_positions=512, bos_token_id=0, eos_token_id=1
    ),
    "opt": lambda: tf.OPTConfig(
        vocab_size=280,
        hidden_size=32,
        word_embed_proj_dim=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
        pad_token_id=2,
    ),
    "falcon": lambda: tf.FalconConfig(vocab_size=280, hidden_size=32, num_hidden_layers=2, num_attention_heads=4),
    "gpt_neo": lambda: tf.GPTNeoConfig(
        vocab_size=280,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=60,
        bos_token_id=0,
        eos_token_id=1,
    ),
    "bloom": lambda: tf.BloomConfig(vocab_size=280, hidden_size=32, n_layer=2, n_head=4),
    "mixtral": lambda: tf.MixtralConfig(**_GROUPED, num_local_experts=4),
}
_ENCODER_CONFIGS: dict[str, Any] = {
    "bert": lambda: tf.BertConfig(**_SIZES),
    "roberta": lambda: tf.RobertaConfig(**_SIZES | dict(max_position_embeddings=515)),
    "distilbert": lambda: tf.DistilBertConfig(
        vocab_size=280, dim=32, hidden_dim=48, n_layers=2, n_heads=4, pad_token_id=2
    ),
    "deberta_v2": lambda: tf.DebertaV2Config(
        **_SIZES,
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        position_biased_input=False,
    ),
    "modernbert": lambda: tf.ModernBertConfig(
        **_SIZES, cls_token_id=0, sep_token_id=1, bos_token_id=0, eos_token_id=1, local_attention=2 * WINDOW
    ),
    "albert": lambda: tf.AlbertConfig(**_SIZES, embedding_size=16),
}
DECODERS = tuple(name for name in _DECODER_CONFIGS if name not in ("gpt_neo", "bloom", "mixtral"))
SLIDING = ("qwen2_sliding", "mistral", "gemma2", "gemma3", "phi3_sliding")
ENCODERS = tuple(name for name in _ENCODER_CONFIGS if name != "albert")
EAGER_ONLY = ("gemma2", "gpt_neo", "bloom", "deberta_v2")


def tiny_model(name: str, *, attention: str = "sdpa", dtype: torch.dtype = torch.float32, **config: Any) -> Any:
    """A fresh copy of the architecture's tiny model, in evaluation mode."""
    if config:
        return _build(name, attention, **config).to(dtype)
    return deepcopy(_cached(name, attention)).to(dtype)


@functools.cache
def _cached(name: str, attention: str) -> Any:
    return _build(name, attention)


def _build(name: str, attention: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    if name in _DECODER_CONFIGS:
        config, auto = _DECODER_CONFIGS[name](), tf.AutoModelForCausalLM
    else:
        config, auto = _ENCODER_CONFIGS[name](), tf.AutoModelForSequenceClassification
        config.num_labels = 4
    for key, value in changes.items():
        setattr(config, key, value)
    model = auto.from_config(config, attn_implementation="eager" if name in EAGER_ONLY else attention)
    _enlarge(model)
    return model.eval()


def _enlarge(model: Any) -> None:
    """Weights at which every mask, position, bias and norm is visible in the outputs."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim >= 2:
            parameter.data = noise * 1.2 / parameter.shape[-1] ** 0.5
        else:
            parameter.data = parameter.data + 0.2 * noise
