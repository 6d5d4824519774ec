"""Hooks that turn the output gradients of a model's matrices into moments of per-example gradients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from ..blocks import Matrix, token_rows
from ..errors import ModelError

Moment = Literal["square", "absolute"]


class Inseparable(Exception):
    """A batch of several examples whose gradients of one matrix, which is named, cannot be told apart."""


class GradientMoments:
    """Weighted sums of g^2 or |g| over gradients g, (d_out, d_in) in float32 or better by matrix name.

    A gradient is as large as its matrix, so one buffer for each shape serves all of them: fresh memory
    for every example and matrix would cost more than the squaring.
    """

    def __init__(self, matrices: Sequence[Matrix], moment: Moment) -> None:
        self.moment = moment
        self.by_name = {
            m.name: torch.zeros_like(m.weight, dtype=torch.promote_types(m.weight.dtype, torch.float32))
            for m in matrices
        }
        self.buffers: dict[tuple[torch.Size, torch.device, torch.dtype], torch.Tensor] = {}

    def add(self, name: str, gradient: torch.Tensor, weight: float) -> None:
        """Add a whole gradient, times its weight."""
        if self.moment == "square":
            self.by_name[name].addcmul_(gradient, gradient, value=weight)
        else:
            self.by_name[name].add_(gradient.abs(), alpha=weight)

    def add_product(self, name: str, delta: torch.Tensor, inputs: torch.Tensor, weight: float) -> None:
        """Add the gradient delta^T inputs, from (T, d_out) and (T, d_in)."""
        total = self.by_name[name]
        key = (total.shape, total.device, delta.dtype)
        if key not in self.buffers:
            self.buffers[key] = torch.empty_like(total, dtype=delta.dtype)
        self.add(name, torch.mm(delta.T, inputs, out=self.buffers[key]), weight)


class Recorder:
    """Watches one batch: a forward pass, then any number of backward passes.

    A matrix with inputs a (T, d_in) and output gradients delta (T, d_out) of one example has that
    example's gradient delta^T a. Every row of the batch is an example of its own; where a matrix is
    called several times, or on inputs that are not one vector a token (DeBERTa sends its table of
    relative positions through query and key), rows cannot be told apart and the batch must hold one.

    Args:
        matrices: to watch.
        real: (B, S) bool, False on padding.
        moments: where gradients go.
        rows: (B,) numbers of the examples, by which an error names them, where they are known.
    """

    def __init__(
        self,
        matrices: Sequence[Matrix],
        real: torch.Tensor,
        moments: GradientMoments,
        *,
        rows: Sequence[int] = (),
    ) -> None:
        self.matrices, self.real, self.moments, self.rows = matrices, real, moments, rows
        self.apart = len(real) > 1
        self.spans = [_span(row) for row in real.cpu()] if self.apart else []
        self.calls: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.partial: dict[str, torch.Tensor] = {}
        self.weights: tuple[float, ...] = ()
        self.handles: list[Any] = []

    def __enter__(self) -> Recorder:
        self.handles = [m.module.register_forward_hook(self._hook(m.name)) for m in self.matrices]
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self.handles:
            handle.remove()

    def backward(self, loss: torch.Tensor, weights: Sequence[float], *, last: bool) -> None:
        """Add the moments of the loss's gradients.

        Args:
            loss: a scalar, the sum over rows of their own losses.
            weights: (B,) weight of each row's moment, 0 for rows that the loss does not depend on.
            last: whether the graph can go.
        """
        self.weights = tuple(weights)
        self.missing = self.calls.copy()
        if not loss.requires_grad:  # nothing that is watched reaches it
            return
        loss.backward(retain_graph=not last)  # type: ignore[no-untyped-call]
        # Calls that do not reach the loss have no gradient to wait for.
        for name, gradient in self.partial.items():
            self.moments.add(name, gradient, self.weights[0])
        self.partial.clear()

    def _hook(self, name: str) -> Callable[[Any, tuple[Any, ...], torch.Tensor], torch.Tensor]:
        def watch(module: Any, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
            inputs = args[0].detach()
            self.calls[name] += 1
            if self.apart and (self.calls[name] > 1 or token_rows(inputs, self.real) is None):
                raise Inseparable(name)
            begins = not output.requires_grad  # nothing before it is watched: the graph begins here
            if begins:
                output.requires_grad_(True)
            output.register_hook(lambda delta: self._add(name, inputs, delta))  # type: ignore[no-untyped-call]
            # A graph's first tensor must not be changed in place, as Falcon does to its MLP's output.
            return output.clone() if begins else output

        return watch

    def _add(self, name: str, inputs: torch.Tensor, delta: torch.Tensor) -> None:
        if not torch.isfinite(delta).all():
            raise ModelError(
                f"Expected finite gradients, but those of {name} hold NaN or infinity{self._where(delta)}; try float32."
            )
        (self._add_rows if self.apart else self._add_call)(name, inputs, delta)

    def _where(self, delta: torch.Tensor) -> str:
        """The first example with a gradient that is not finite, where examples can be told apart."""
        if not self.rows or delta.shape[:-1].numel() != self.real.numel():
            return ""
        bad = ~torch.isfinite(delta).reshape(len(self.rows), -1).all(1)
        return f" on row {self.rows[int(bad.nonzero()[0])]} of the prune role"

    def _add_rows(self, name: str, inputs: torch.Tensor, delta: torch.Tensor) -> None:
        """The only call on a batch of several rows."""
        shape = (*self.real.shape, -1)
        rows = zip(self.weights, self.spans, inputs.reshape(shape), delta.reshape(shape), strict=True)
        for weight, span, a, d in rows:
            if weight:
                self.moments.add_product(name, d[span], a[span], weight)

    def _add_call(self, name: str, inputs: torch.Tensor, delta: torch.Tensor) -> None:
        """One of the calls whose gradients add up; padding has none. The moment waits for the last call."""
        delta, inputs = delta.reshape(-1, delta.shape[-1]), inputs.reshape(-1, inputs.shape[-1])
        self.missing[name] -= 1
        if name not in self.partial and not self.missing[name]:
            self.moments.add_product(name, delta, inputs, self.weights[0])
            return
        gradient = delta.T @ inputs + self.partial.pop(name, 0)
        if self.missing[name]:
            self.partial[name] = gradient
        else:
            self.moments.add(name, gradient, self.weights[0])


def _span(real: torch.Tensor) -> slice:
    """Where a row's tokens stand between its padding."""
    places = real.nonzero()
    return slice(int(places[0]), int(places[-1]) + 1)
