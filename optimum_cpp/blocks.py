"""The transformer blocks of a model, their prunable matrices, and how to run one block alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .errors import ModelError, UsageError

# Projections of position embeddings inside a block (DeBERTa) are positional parts and stay dense.
_POSITIONAL = ("pos_key_proj", "pos_query_proj", "pos_proj", "pos_q_proj")


@dataclass(frozen=True)
class Matrix:
    """One prunable weight matrix.

    Attributes:
        name: dotted name of its module in the model.
        module: the `nn.Linear`, or a `Conv1D` that stores the transpose.
    """

    name: str
    module: nn.Module

    @property
    def weight(self) -> torch.Tensor:
        """(d_out, d_in) view of the stored weight; writing to it changes the model."""
        stored: torch.Tensor = self.module.weight.data  # type: ignore[assignment]
        return stored if isinstance(self.module, nn.Linear) else stored.T


@dataclass(frozen=True)
class Block:
    """One transformer block and its prunable matrices, in the order of its modules."""

    name: str
    module: nn.Module
    matrices: tuple[Matrix, ...]


def find_blocks(
    model: nn.Module, *, target_modules: Sequence[str] = (), ignore: Sequence[str] = ()
) -> tuple[Block, ...]:
    """The dense attention and MLP matrices inside the model's transformer blocks.

    Args:
        model: a transformers model.
        target_modules: names or endings of names; only these matrices are pruned.
        ignore: names or endings of names that stay dense.

    Raises:
        ModelError: no blocks, an encoder-decoder, or weights in the blocks that are not understood.
        UsageError: a name in `target_modules` or `ignore` that no matrix has.
    """
    config: Any = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"Expected a decoder or an encoder, but {config.model_type} is an encoder-decoder, whose labels "
            "cannot be scored here."
        )
    prefix, layers = _block_list(model)
    found = [
        Matrix(f"{prefix}.{index}.{name}", module)
        for index, layer in enumerate(layers)
        for name, module in layer.named_modules()
        if _is_dense(module) and not name.endswith(_POSITIONAL)
    ]
    for option, names in (("target_modules", target_modules), ("ignore", ignore)):
        for name in names:
            if not any(_named(matrix.name, name) for matrix in found):
                raise UsageError(
                    f"Expected `{option}` to name matrices of the model, but none ends with {name!r}; "
                    f"there are {', '.join(sorted({m.name.split('.', prefix.count('.') + 2)[-1] for m in found}))}."
                )
    if not target_modules:
        _refuse_unknown_weights(prefix, layers)
    chosen = [
        matrix
        for matrix in found
        if (not target_modules or any(_named(matrix.name, name) for name in target_modules))
        and not any(_named(matrix.name, name) for name in ignore)
    ]
    if not chosen:
        raise ModelError(f"Expected prunable matrices in {prefix}, but none is left; check the names given.")
    return tuple(
        Block(f"{prefix}.{index}", layer, tuple(m for m in chosen if m.name.startswith(f"{prefix}.{index}.")))
        for index, layer in enumerate(layers)
    )


def matrices_of(blocks: Sequence[Block]) -> list[Matrix]:
    """All matrices of the blocks, in order."""
    return [matrix for block in blocks for matrix in block.matrices]


def named_matrices(model: nn.Module, names: Sequence[str]) -> list[Matrix]:
    """The matrices of these module names."""
    return [Matrix(name, model.get_submodule(name)) for name in names]


def describe_blocks(blocks: Sequence[Block]) -> str:
    """One line: how many blocks, and which matrices of each are pruned."""
    kinds = dict.fromkeys(matrix.name.removeprefix(block.name + ".") for block in blocks for matrix in block.matrices)
    total = sum(matrix.weight.numel() for matrix in matrices_of(blocks))
    return f"{len(blocks)} blocks, {total:,} prunable weights in {', '.join(kinds)}"


def _is_dense(module: nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, (nn.Linear, Conv1D))


def _named(full_name: str, name: str) -> bool:
    return full_name == name or full_name.endswith("." + name)


def _block_list(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """The list of blocks: the module list that holds the most weights in dense layers."""

    def dense_weights(layers: nn.ModuleList) -> int:
        return sum(p.numel() for module in layers.modules() if _is_dense(module) for p in module.parameters())

    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.ModuleList)]
    outer = [(name, m) for name, m in lists if not any(name.startswith(other + ".") for other, _ in lists)]
    if not outer:
        children = ", ".join(name for name, _ in model.named_children())
        raise ModelError(f"Expected a model with a list of transformer blocks, but found only {children}.")
    name, layers = max(outer, key=lambda item: dense_weights(item[1]))
    if dense_weights(layers) == 0:
        kinds = ", ".join(sorted({type(m).__name__ for m in layers.modules()}))
        raise ModelError(f"Expected dense layers in the blocks {name!r}, but they hold only {kinds}.")
    return name, layers


def _refuse_unknown_weights(prefix: str, layers: nn.ModuleList) -> None:
    """Pruning part of a block without saying so would misstate the sparsity, so it is refused."""
    unknown = []
    for index, layer in enumerate(layers):
        for name, module in layer.named_modules():
            if _is_dense(module) or isinstance(module, nn.Embedding):
                continue
            for parameter, value in module.named_parameters(recurse=False):
                if value.ndim >= 2 and min(value.shape) > 1:
                    unknown.append(f"{prefix}.{index}.{name}.{parameter} {tuple(value.shape)}")
    if unknown:
        raise ModelError(
            f"Expected every weight of the blocks to be in dense layers, but {len(unknown)} are not (fused experts?): "
            f"{', '.join(unknown[:4])}{', ...' if len(unknown) > 4 else ''}; name the matrices to prune with "
            "--target_modules to leave these dense."
        )


@dataclass
class BlockCalls:
    """What one batch passes through the blocks.

    Attributes:
        hidden: (B, S, d) the next block's input.
        arguments: for each block its further positional and keyword arguments (masks, positions).
        real: (B, S) bool, False on padding.
    """

    hidden: torch.Tensor
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]]
    real: torch.Tensor


def capture_block_calls(
    model: nn.Module, blocks: Sequence[Block], inputs: dict[str, torch.Tensor], real: torch.Tensor
) -> BlockCalls:
    """Record the first block's input and every block's arguments, as the model itself passes them.

    Only the first block computes; the others hand their input on, because layers of different types
    get different masks and positions, and the model alone knows which.

    Raises:
        ModelError: a block that is called more than once in a pass (shared layers), or a model that
            computes something between two blocks, which running them one after another would leave out.
    """
    recorded: list[tuple[torch.Tensor, tuple[Any, ...], dict[str, Any]]] = []
    with _recording(blocks, recorded):
        model(**inputs)
    if len(recorded) != len(blocks):
        raise ModelError(
            f"Expected each of the {len(blocks)} blocks to run once in a pass, but {len(recorded)} calls were made; "
            "models that share or skip blocks cannot be pruned block by block."
        )
    first = recorded[0][0]
    for block, (hidden, _, _) in zip(blocks[1:], recorded[1:], strict=True):
        if hidden is not first and not torch.equal(hidden, first):
            raise ModelError(
                f"Expected {block.name} to read the output of the block before it, but the model changes it in "
                "between; such models cannot be pruned block by block."
            )
    return BlockCalls(first, [(args, kwargs) for _, args, kwargs in recorded], real)


@contextmanager
def _recording(
    blocks: Sequence[Block], recorded: list[tuple[torch.Tensor, tuple[Any, ...], dict[str, Any]]]
) -> Iterator[None]:
    first = blocks[0].module.forward
    template: list[Any] = []

    def record(*args: Any, **kwargs: Any) -> Any:
        given = (args, dict(kwargs))
        hidden, args, kwargs = _split_hidden(args, dict(kwargs))
        recorded.append((hidden, args, kwargs))
        if not template:
            template.append(first(*given[0], **given[1]))
        return (hidden, *template[0][1:]) if isinstance(template[0], tuple) else hidden

    replaced = [(block.module, block.module.__dict__.get("forward")) for block in blocks]
    for module, _ in replaced:
        module.forward = record
    try:
        yield
    finally:
        for module, own in replaced:
            if own is None:
                del module.forward
            else:
                module.forward = own


def _split_hidden(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.Tensor, tuple[Any, ...], dict[str, Any]]:
    if args:
        return args[0], args[1:], kwargs
    return kwargs.pop("hidden_states"), (), kwargs


def run_block(block: Block, hidden: torch.Tensor, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> torch.Tensor:
    """The block's output hidden states, (B, S, d); older layers return them first in a tuple."""
    output = block.module(hidden, *arguments[0], **arguments[1])
    result: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return result


def token_rows(inputs: torch.Tensor, real: torch.Tensor) -> torch.Tensor | None:
    """(B * S, d) view of a matrix's inputs, or None where they are not one vector a token.

    DeBERTa sends its table of relative positions through the same projections; that is not data.
    """
    tokens = real.numel()
    if inputs.shape[:-1].numel() != tokens or (inputs.ndim == 3 and inputs.shape[:2] != real.shape):
        return None
    return inputs.reshape(tokens, inputs.shape[-1])
