"""Callbacks for `Trainer` and the trainers that are built on it: a pruned model stays pruned while it learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from .blocks import find_blocks, matrices_of
from .errors import ModelError, UsageError

# A dense matrix in half precision may hold a few zeros by chance.
_LEAST_SPARSITY = 0.01


class SparsityCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Weights that are zero when training begins, or goes on, are zero after every step.

    Their gradients are zeroed as soon as they are there, so that clipping does not count them and the
    optimiser's moments stay exactly zero; after each step the weights themselves are zeroed again, for
    optimisers that move weights without a gradient.

    Args:
        target_modules: names or endings of names of the matrices to keep sparse (default: as found).
        ignore: names or endings of names of matrices that may fill up again.

    Attributes:
        pruned: number of weights that are kept at zero; 0 before training begins.
    """

    def __init__(self, target_modules: Sequence[str] = (), ignore: Sequence[str] = ()) -> None:
        self.target_modules, self.ignore = tuple(target_modules), tuple(ignore)
        self.pruned = 0
        self._masks: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self._hooks: list[Any] = []

    def state(self) -> dict[str, Any]:
        """What `trainer_state.json` keeps; the masks themselves are in the checkpoint's weights."""
        options = {"target_modules": list(self.target_modules), "ignore": list(self.ignore)}
        return {"args": options, "attributes": {"pruned": self.pruned}}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Find the zeros.

        Raises:
            UsageError: DeepSpeed, or adapters.
            ModelError: a dense model.
        """
        self._release()
        if getattr(args, "deepspeed", None):
            raise UsageError(
                "Expected training without DeepSpeed, whose optimiser steps on copies of the weights that no mask "
                "reaches; train with FSDP, or on one device."
            )
        if hasattr(model, "peft_config"):
            raise UsageError(
                "Expected all weights to be trained, but the model has adapters, whose merging would fill the zeros; "
                "train without adapters."
            )
        matrices = matrices_of(find_blocks(model, target_modules=self.target_modules, ignore=self.ignore))
        weights: list[torch.nn.Parameter] = [matrix.module.weight for matrix in matrices]  # type: ignore[misc]
        self._masks = [(weight, weight.detach() == 0) for weight in weights]
        self.pruned = sum(int(zero.sum()) for _, zero in self._masks)
        size = sum(weight.numel() for weight in weights)
        if self.pruned < _LEAST_SPARSITY * size:
            raise ModelError(
                f"Expected a pruned model, but only {self.pruned} of its {size} prunable weights are zero; prune it "
                "first, or leave the callback out."
            )
        self._hooks = [
            weight.register_post_accumulate_grad_hook(_zeroing(zero))  # type: ignore[no-untyped-call]
            for weight, zero in self._masks
            if weight.requires_grad
        ]

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Zero the weights again."""
        with torch.no_grad():
            for weight, zero in self._masks:
                weight.masked_fill_(zero, 0)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let go of the model."""
        self._release()

    def _release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._masks = [], []


def _zeroing(zero: torch.Tensor) -> Any:
    def hook(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.masked_fill_(zero, 0)

    return hook
