"""Open a checkpoint: a causal language model, or an encoder with a classification head."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .data import ClassificationTask
from .errors import MissingDependency, ModelError
from .scoring import ClassifierScorer, LabelScorer, VerbalizerScorer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class LoadedModel:
    """A checkpoint in memory.

    Attributes:
        model: the transformers model, in evaluation mode.
        tokenizer: its tokenizer.
        kind: 'decoder' or 'encoder'.
        name: Hub id or folder it came from.
        revision: its commit on the Hub, or None for a folder.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    kind: str
    name: str
    revision: str | None


def load_model(
    name: str | os.PathLike[str],
    *,
    revision: str | None = None,
    gguf_file: str | None = None,
    dtype: str = "auto",
    device_map: Any = None,
) -> LoadedModel:
    """Load a model and its tokenizer; no code from the folder is run.

    Raises:
        ModelError: nothing can be opened there, it is not a classifier that can be scored, or a weight
            is NaN or infinite; the tensor is named.
        MissingDependency: a GGUF file without the `gguf` package.
    """
    import transformers

    if gguf_file is not None:
        _need_gguf()
    where = {"revision": revision, "gguf_file": gguf_file, "trust_remote_code": False}
    where = {key: value for key, value in where.items() if value is not None}
    with _opening(name, "a model configuration"):
        config = transformers.AutoConfig.from_pretrained(name, **where)
    kind = classifier_kind(config)
    auto: Any = transformers.AutoModelForCausalLM
    if kind == "encoder":
        auto = transformers.AutoModelForSequenceClassification
    tokenizer = load_tokenizer(name, **where)
    with _opening(name, "a model"):
        model, found = auto.from_pretrained(name, dtype=dtype, device_map=device_map, output_loading_info=True, **where)
    if found["missing_keys"]:
        # transformers would fill them with random numbers and go on.
        raise ModelError(
            f"Expected {str(name)!r} to hold every weight of {type(model).__name__}, but {len(found['missing_keys'])} "
            f"are missing ({', '.join(sorted(found['missing_keys'])[:3])}); train or restore them first."
        )
    absent = next((key for key, parameter in model.named_parameters() if parameter.is_meta), None)
    if absent is not None:
        raise ModelError(
            f"Expected argument `device_map` to put every weight into memory, but {device_map!r} leaves {absent} "
            "on the meta device."
        )
    _refuse_nan(model, name)
    if gguf_file is not None:
        _forget_gguf(model)
    model.eval()
    return LoadedModel(model, tokenizer, kind, str(name), getattr(config, "_commit_hash", None))


def _refuse_nan(model: torch.nn.Module, name: object) -> None:
    for key, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise ModelError(
                f"Expected finite weights in {str(name)!r}, but {key} holds NaN or infinity; take another checkpoint."
            )


def load_tokenizer(name: str | os.PathLike[str], **where: Any) -> PreTrainedTokenizerBase:
    """Load a tokenizer; no code from the folder is run.

    Raises:
        ModelError: there is none that transformers can open.
    """
    import transformers

    with _opening(name, "a tokenizer"):
        return transformers.AutoTokenizer.from_pretrained(name, **{**where, "trust_remote_code": False})


@contextmanager
def _opening(name: object, what: str) -> Iterator[None]:
    """One sentence for the many ways in which transformers says that it cannot open a folder."""
    from safetensors import SafetensorError

    try:
        yield
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
        AssertionError,
        ImportError,
        SafetensorError,
    ) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = " ".join(lines)[:300] or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"a file lacks {reason}"
        raise ModelError(f"Expected {what} that transformers can open at {str(name)!r}, but: {reason}") from error


def classifier_kind(config: Any) -> str:
    """'decoder' or 'encoder', from the architecture that the configuration names.

    Raises:
        ModelError: an encoder-decoder, a quantised checkpoint, or a model without a head to score with.
    """
    quantisation = getattr(config, "quantization_config", None)
    method = (
        quantisation.get("quant_method")
        if isinstance(quantisation, dict)
        else getattr(quantisation, "quant_method", None)
    )
    if quantisation is not None and str(method).rsplit(".", 1)[-1].lower() != "gguf":
        raise ModelError(
            f"Expected an unquantised checkpoint, but this one is quantised ({method}); start from the original "
            "weights and quantise after pruning."
        )
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"Expected a decoder or an encoder, but {config.model_type} is an encoder-decoder.")
    architectures = getattr(config, "architectures", None) or ["ForCausalLM"]
    if any(name.endswith("ForSequenceClassification") for name in architectures):
        return "encoder"
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        return "decoder"
    raise ModelError(
        f"Expected a causal language model or a model with a classification head, but got {', '.join(architectures)}; "
        "fine-tune an encoder with AutoModelForSequenceClassification first."
    )


def make_scorer(
    loaded: LoadedModel,
    task: ClassificationTask,
    *,
    max_text_tokens: int,
    length_normalize: bool,
    batch_tokens: int | None,
) -> LabelScorer:
    """The scorer of the model's kind."""
    if loaded.kind == "encoder":
        return ClassifierScorer(
            loaded.model, loaded.tokenizer, task, max_text_tokens=max_text_tokens, batch_tokens=batch_tokens
        )
    return VerbalizerScorer(
        loaded.model,
        loaded.tokenizer,
        task,
        max_text_tokens=max_text_tokens,
        length_normalize=length_normalize,
        batch_tokens=batch_tokens,
    )


def weights_digest(model: torch.nn.Module) -> str:
    """SHA-256 over every parameter's and buffer's name, dtype, shape and bytes, in name order."""
    import torch

    hasher = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        value = tensor.detach().cpu().contiguous()
        hasher.update(f"{name}:{value.dtype}:{tuple(value.shape)}:".encode())
        hasher.update(memoryview(value.reshape(-1).view(torch.uint8).numpy()))
    return f"sha256:{hasher.hexdigest()}"


def is_model_folder(path: str | os.PathLike[str]) -> bool:
    """Whether the path is a local folder with a model configuration."""
    return (Path(path) / "config.json").is_file()


def _need_gguf() -> None:
    try:
        import gguf  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "Expected the package gguf to open a GGUF file, but it is not installed; run "
            'pip install "optimum-cpp[gguf]".'
        ) from error


def _forget_gguf(model: Any) -> None:
    """The weights are dequantised; drop the marks that make transformers refuse to save them."""
    model.hf_quantizer = None
    model.is_quantized = False
    for owner, attribute in ((model, "quantization_method"), (model.config, "quantization_config")):
        if hasattr(owner, attribute):
            delattr(owner, attribute)
