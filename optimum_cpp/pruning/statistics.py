"""Statistics of the inputs of a block's matrices, over real tokens only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from ..blocks import Block, BlockCalls, Matrix, run_block, token_rows
from ..errors import ModelError


@dataclass
class InputStatistics:
    """What a base pruner may know of a matrix's inputs x.

    Attributes:
        tokens: number of real tokens.
        square_sums: (d_in,) float64, sum over tokens of x_j^2.
        products: (d_in, d_in) float32, sum over tokens of x x^T, or None where no pruner needs it.
    """

    tokens: int
    square_sums: torch.Tensor
    products: torch.Tensor | None

    @property
    def norms(self) -> torch.Tensor:
        """(d_in,) float64 root mean square of each input over real tokens."""
        return (self.square_sums / self.tokens).sqrt()

    def add(self, inputs: torch.Tensor) -> None:
        """Add (T, d_in) inputs of real tokens."""
        inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        self.tokens += len(inputs)
        self.square_sums += inputs.square().sum(0, dtype=torch.float64)
        if self.products is not None:
            self.products.addmm_(inputs.T, inputs)


def collect_statistics(
    block: Block, index: int, calls: Sequence[BlockCalls], *, products: bool
) -> dict[str, InputStatistics]:
    """Run the block on every batch and gather the statistics of each matrix's inputs.

    Args:
        block: the block, all its matrices still dense.
        index: its place among the blocks.
        calls: the batches, their hidden states at this block's input.
        products: whether sums of x x^T are needed.

    Returns:
        Statistics by matrix name; matrices that read the same tensor (query, key and value; gate and
        up) share one object.

    Raises:
        ModelError: NaN or infinite activations (the matrix is named), or a matrix that never ran.
    """
    collector = _Collector(products, len(block.matrices))
    handles = [matrix.module.register_forward_pre_hook(collector.hook(matrix)) for matrix in block.matrices]
    try:
        for call in calls:
            collector.begin(call.real)
            with suppress(_AllSeen):
                run_block(block, call.hidden, call.arguments[index])
    finally:
        for handle in handles:
            handle.remove()
    for matrix in block.matrices:
        if matrix.name not in collector.statistics:
            raise ModelError(f"Expected matrix {matrix.name} to run in its block, but no token reached it.")
        if not torch.isfinite(collector.statistics[matrix.name].square_sums).all():
            raise ModelError(f"Expected finite inputs of matrix {matrix.name}, but they hold NaN or infinity.")
    return collector.statistics


class _AllSeen(Exception):
    """Every matrix has its inputs; what the last one makes of them is not needed."""


class _Collector:
    """Hooks before each matrix that add its inputs, once for all matrices that share them."""

    def __init__(self, products: bool, matrices: int) -> None:
        self.products, self.matrices = products, matrices
        self.real = torch.empty(0)
        self.statistics: dict[str, InputStatistics] = {}
        self.owners: dict[str, str] = {}
        self.first_inputs: list[tuple[torch.Tensor, str]] = []
        self.counted: set[str] = set()

    def begin(self, real: torch.Tensor) -> None:
        """Start a batch, in which each matrix's first call counts."""
        self.real = real
        self.first_inputs.clear()
        self.counted.clear()

    def hook(self, matrix: Matrix) -> Callable[[Any, tuple[Any, ...]], None]:
        def add(module: Any, args: tuple[Any, ...]) -> None:
            rows = token_rows(args[0], self.real)
            # A table of positions may have as many rows as there are tokens; it comes after them.
            if rows is None or matrix.name in self.counted:
                return
            self.counted.add(matrix.name)
            if matrix.name not in self.owners:
                self._adopt(matrix.name, args[0])
            if self.owners[matrix.name] == matrix.name:
                self.statistics[matrix.name].add(rows[self.real.flatten()])
            if len(self.counted) == self.matrices:
                raise _AllSeen

        return add

    def _adopt(self, name: str, inputs: torch.Tensor) -> None:
        """Decide in the first batch whose statistics the matrix uses; references keep identity unique."""
        owner = next((other for tensor, other in self.first_inputs if tensor is inputs), name)
        self.owners[name] = owner
        self.first_inputs.append((inputs, name))
        if owner == name:
            width, device = inputs.shape[-1], inputs.device
            self.statistics[name] = InputStatistics(
                tokens=0,
                square_sums=torch.zeros(width, dtype=torch.float64, device=device),
                products=torch.zeros(width, width, device=device) if self.products else None,
            )
        else:
            self.statistics[name] = self.statistics[owner]
