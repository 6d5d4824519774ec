"""What every scorer offers to the stages above it, and the batches they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ..errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from ..data.tasks import ClassificationTask


@dataclass(frozen=True)
class LabelledBatch:
    """Rows with their true labels, ready for the model.

    Attributes:
        rows: row numbers of the examples in the order of the batch.
        inputs: keyword arguments of the model's forward pass.
        real: (B, S) bool, False on padding.
    """

    rows: tuple[int, ...]
    inputs: dict[str, torch.Tensor]
    real: torch.Tensor


@dataclass(frozen=True)
class TargetBatch:
    """Rows, each with the labels whose scores are differentiated.

    Attributes:
        rows: row numbers of the examples in the order of the batch. Where a scorer runs every label as a
            sequence of its own, an example stands there once for each label.
        targets: label columns of each row; the pairs (row, label) are numbered in this order.
        inputs: what the scorer's model reads.
        real: (B, S) bool, False on padding, which stands before or behind a row's tokens.
    """

    rows: tuple[int, ...]
    targets: tuple[tuple[int, ...], ...]
    inputs: Any
    real: torch.Tensor


class LabelScorer(Protocol):
    """Turns texts into log-probabilities of labels, with or without a graph."""

    kind: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: ClassificationTask
    max_text_tokens: int
    length_normalize: bool
    batch_tokens: int
    truncated: int

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in column order."""

    def describe(self) -> str:
        """One line that says how labels are scored."""

    def label_token_ids(self) -> tuple[tuple[int, ...], ...]:
        """Each label's verbalizer tokens as the tokenizer gives them now (empty for encoders)."""

    def log_probabilities(self, texts: Sequence[str], *, description: str | None = None) -> npt.NDArray[np.float64]:
        """(N, K) float64 log p(y | x)."""

    def labelled_batches(
        self, texts: Sequence[str], labels: Sequence[int], batch_tokens: int, *, max_rows: int | None = None
    ) -> Iterator[LabelledBatch]:
        """The rows with their true labels, in length-sorted batches of at most `max_rows`."""

    def target_batches(
        self,
        texts: Sequence[str],
        targets: Sequence[tuple[int, ...]],
        batch_tokens: int,
        *,
        max_rows: int | None = None,
    ) -> Iterator[TargetBatch]:
        """The rows with the labels whose gradients are wanted, rows of as many labels together."""

    def target_log_probabilities(self, batch: TargetBatch) -> torch.Tensor:
        """(P,) float64 log p(y | x) of the batch's pairs (row, label), differentiable."""


def check_finite(scores: npt.NDArray[np.float64]) -> None:
    """Raise a `ModelError` that names the first row with a NaN or infinite log-probability."""
    bad = np.flatnonzero(~np.isfinite(scores).all(axis=1))
    if bad.size:
        raise ModelError(
            f"Expected finite label scores, but row {bad[0]} has {scores[bad[0]].min()}; "
            "check the model's weights and dtype (float32 is the safest)."
        )
