"""Squared per-example gradients G_cal of the true label's score (CPP paper, Eqs. 5-6)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import ModelError
from ..progress import progress_bar
from ..pruning import Matrix
from ..pruning.statistics import token_rows
from ..scoring import LabelledBatch, LabelScorer

logger = logging.getLogger(__name__)


def squared_gradients(
    scorer: LabelScorer,
    matrices: Sequence[Matrix],
    texts: Sequence[str],
    labels: Sequence[int],
    *,
    batch_tokens: int,
    description: str | None = None,
) -> dict[str, torch.Tensor]:
    """G(theta_j) = mean over examples of (d s(x_i, y_i) / d theta_j)^2 with s = -log p(y | x).

    The square is taken before the sum over examples. One backward pass serves a batch: a matrix with
    inputs a (T, d_in) and output gradients delta (T, d_out) of one example has that example's gradient
    delta^T a, so only activations need a graph and no parameter gets a `.grad`. Where a pass calls a
    matrix several times, or on inputs that are not one vector a token (DeBERTa sends its table of
    relative positions through query and key), the examples of a batch cannot be told apart: then each
    is a batch of its own, whose gradient is the sum over the calls.

    Args:
        scorer: the dense classifier.
        matrices: the eligible matrices.
        texts: N texts of the prune role.
        labels: (N,) their label indices.
        batch_tokens: most tokens in a batch; its activations stay in memory for the backward pass.
        description: name of the progress bar, none without it.

    Returns:
        (d_out, d_in) float32 (float64 for a float64 model) by matrix name.

    Raises:
        ModelError: parameters on the meta device or offloaded, a gradient that is zero everywhere, or
            NaN gradients (the matrix is named).
    """
    _refuse_offloaded(scorer.model)
    sums = _SquareSums(matrices)

    def add_all(batches: Iterator[LabelledBatch]) -> None:
        with progress_bar(len(texts), description) as bar:
            for batch in batches:
                with _Recorder(matrices, batch.real, sums):
                    (-scorer.label_log_probabilities(batch)).sum().backward()  # type: ignore[no-untyped-call]
                bar.update(len(batch.rows))

    with _frozen_parameters(scorer.model):
        try:
            add_all(scorer.labelled_batches(texts, labels, batch_tokens))
        except _Inseparable as found:
            logger.info("Saliency takes one example at a time: %s has inputs that examples share.", found)
            sums = _SquareSums(matrices)
            add_all(scorer.labelled_batches(texts, labels, batch_tokens, max_rows=1))
    for total in sums.by_name.values():
        total.div_(len(texts))
    _check(sums.by_name)
    return sums.by_name


def _check(gradients: dict[str, torch.Tensor]) -> None:
    for name, gradient in gradients.items():
        if not torch.isfinite(gradient).all():
            raise ModelError(f"Expected finite gradients, but those of {name} hold NaN or infinity; try float32.")
    if not any(bool(gradient.any()) for gradient in gradients.values()):
        raise ModelError(
            "Expected the score to depend on the prunable weights, but every gradient is zero; "
            "is the model detached or frozen by a hook?"
        )


def _refuse_offloaded(model: torch.nn.Module) -> None:
    from accelerate.utils import has_offloaded_params

    for name, module in model.named_modules():
        on_meta = any(parameter.is_meta for parameter in module.parameters(recurse=False))
        if on_meta or has_offloaded_params(module):
            raise ModelError(
                f"Expected every weight in memory, but {name} is offloaded, where gradients are silently lost; "
                "load the model without a device map that offloads."
            )


@contextmanager
def _frozen_parameters(model: torch.nn.Module) -> Iterator[None]:
    """Let gradients flow through activations only: the embeddings' output starts the graph."""
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    for parameter, _ in wanted:
        parameter.requires_grad_(False)
    embeddings: Any = model.get_input_embeddings()  # type: ignore[operator]
    handle = embeddings.register_forward_hook(lambda module, args, output: output.requires_grad_(True))
    try:
        with torch.enable_grad():
            yield
    finally:
        handle.remove()
        for parameter, flag in wanted:
            parameter.requires_grad_(flag)


class _Inseparable(Exception):
    """A batch of several examples whose gradients of one matrix, which is named, cannot be told apart."""


class _SquareSums:
    """Sums of squared per-example gradients, (d_out, d_in) in float32 or better by matrix name.

    An example's gradient is as large as its matrix, so one buffer for each shape serves all of them:
    fresh memory for every example and matrix would cost more than the squaring.
    """

    def __init__(self, matrices: Sequence[Matrix]) -> None:
        self.by_name = {
            m.name: torch.zeros_like(m.weight, dtype=torch.promote_types(m.weight.dtype, torch.float32))
            for m in matrices
        }
        self.buffers: dict[tuple[torch.Size, torch.device, torch.dtype], torch.Tensor] = {}

    def add(self, name: str, gradient: torch.Tensor) -> None:
        """Add the square of an example's whole gradient."""
        self.by_name[name].addcmul_(gradient, gradient)

    def add_product(self, name: str, delta: torch.Tensor, inputs: torch.Tensor) -> None:
        """Add the square of the gradient delta^T inputs, from (T, d_out) and (T, d_in)."""
        total = self.by_name[name]
        key = (total.shape, total.device, delta.dtype)
        if key not in self.buffers:
            self.buffers[key] = torch.empty_like(total, dtype=delta.dtype)
        self.add(name, torch.mm(delta.T, inputs, out=self.buffers[key]))


class _Recorder:
    """Hooks that keep each matrix's inputs and turn its output gradients into squared gradients."""

    def __init__(self, matrices: Sequence[Matrix], real: torch.Tensor, sums: _SquareSums) -> None:
        self.matrices, self.real, self.sums = matrices, real, sums
        self.spans = [_span(row) for row in real.cpu()]
        self.calls: Counter[str] = Counter()
        self.partial: dict[str, torch.Tensor] = {}
        self.handles: list[Any] = []

    def __enter__(self) -> _Recorder:
        self.handles = [m.module.register_forward_hook(self._hook(m.name)) for m in self.matrices]
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self.handles:
            handle.remove()
        # Calls that do not reach the score have no gradient to wait for.
        for name, gradient in self.partial.items():
            self.sums.add(name, gradient)

    def _hook(self, name: str) -> Callable[[Any, tuple[Any, ...], torch.Tensor], None]:
        def watch(module: Any, args: tuple[Any, ...], output: torch.Tensor) -> None:
            inputs = args[0].detach()
            self.calls[name] += 1
            if len(self.real) > 1 and (self.calls[name] > 1 or token_rows(inputs, self.real) is None):
                raise _Inseparable(name)
            if not output.requires_grad:  # of inputs that no token embedding reaches
                output.requires_grad_(True)
            add = self._add_rows if len(self.real) > 1 else self._add_call
            output.register_hook(lambda delta: add(name, inputs, delta))  # type: ignore[no-untyped-call]

        return watch

    def _add_rows(self, name: str, inputs: torch.Tensor, delta: torch.Tensor) -> None:
        """The only call on a batch of several rows."""
        shape = (*self.real.shape, -1)
        for span, a, d in zip(self.spans, inputs.reshape(shape), delta.reshape(shape), strict=True):
            self.sums.add_product(name, d[span], a[span])

    def _add_call(self, name: str, inputs: torch.Tensor, delta: torch.Tensor) -> None:
        """One of the calls on a single row, which has no padding; the square waits for the last of them."""
        gradient = delta.reshape(-1, delta.shape[-1]).T @ inputs.reshape(-1, inputs.shape[-1])
        if name in self.partial:
            gradient = gradient + self.partial.pop(name)
        self.calls[name] -= 1
        if self.calls[name]:
            self.partial[name] = gradient
        else:
            self.sums.add(name, gradient)


def _span(real: torch.Tensor) -> slice:
    """Where a row's tokens stand between its padding."""
    places = real.nonzero()
    return slice(int(places[0]), int(places[-1]) + 1)
