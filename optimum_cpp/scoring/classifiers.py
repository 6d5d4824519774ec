"""Label scores of an encoder with a classification head: the log-softmax of its logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from ..data.tasks import ClassificationTask
from ..errors import ModelError
from ..progress import progress_bar
from .batching import default_batch_tokens, length_sorted_batches
from .encoding import truncate_texts
from .examples import LabelledBatch, TargetBatch, check_finite

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class ClassifierScorer:
    """Scores labels with a sequence-classification model.

    Args:
        model: a model with a classification head of K classes, in evaluation mode.
        tokenizer: its fast tokenizer.
        task: labels and prompt (`{text}` alone by default); verbalizers are not used.
        max_text_tokens: longest text; only the text is ever truncated.
        batch_tokens: most tokens in a batch, padding included; by default what suits the model's device.

    Raises:
        ModelError: the head's labels are not the task's.
    """

    kind = "encoder"
    length_normalize = False

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        task: ClassificationTask,
        *,
        max_text_tokens: int = 256,
        batch_tokens: int | None = None,
    ) -> None:
        if not tokenizer.is_fast:
            raise ModelError(
                f"Expected a fast tokenizer, which reports character offsets, but got {type(tokenizer).__name__}; "
                "save the model with its tokenizer.json."
            )
        self.model, self.tokenizer, self.task = model, tokenizer, task
        self.max_text_tokens = max_text_tokens
        self.batch_tokens = batch_tokens or default_batch_tokens(model.device)
        self.truncated = 0
        self.columns = head_columns(model.config, task.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in the fixed order of the score columns."""
        return self.task.labels

    def describe(self) -> str:
        """One line that says how labels are scored."""
        return f"classification head of {len(self.labels)} classes"

    def label_token_ids(self) -> tuple[tuple[int, ...], ...]:
        """A head has no verbalizers: an empty tuple for each label."""
        return ((),) * len(self.labels)

    def log_probabilities(self, texts: Sequence[str], *, description: str | None = None) -> npt.NDArray[np.float64]:
        """log p(y | x) of every label, (N, K) float64; see `VerbalizerScorer.log_probabilities`."""
        scores = np.empty((len(texts), len(self.labels)))
        with torch.inference_mode(), progress_bar(len(texts), description) as bar:
            for rows, inputs in self._batches(texts, self.batch_tokens):
                scores[rows] = self._log_softmax(inputs).double().cpu().numpy()
                bar.update(len(rows))
        check_finite(scores)
        return scores

    def labelled_batches(
        self, texts: Sequence[str], labels: Sequence[int], batch_tokens: int, *, max_rows: int | None = None
    ) -> Iterator[LabelledBatch]:
        """The rows with their true labels, in length-sorted batches of at most `max_rows`."""
        for rows, inputs in self._batches(texts, batch_tokens, max_rows):
            yield LabelledBatch(rows=tuple(rows), inputs=inputs, real=inputs["attention_mask"].bool())

    def target_batches(
        self,
        texts: Sequence[str],
        targets: Sequence[tuple[int, ...]],
        batch_tokens: int,
        *,
        max_rows: int | None = None,
    ) -> Iterator[TargetBatch]:
        """The rows with the labels whose gradients are wanted, rows of as many labels together."""
        for count in sorted({len(labels) for labels in targets}):
            group = [row for row, labels in enumerate(targets) if len(labels) == count]
            for places, inputs in self._batches([texts[row] for row in group], batch_tokens, max_rows):
                rows = tuple(group[place] for place in places)
                real = inputs["attention_mask"].bool()
                yield TargetBatch(rows, tuple(targets[row] for row in rows), inputs, real)

    def target_log_probabilities(self, batch: TargetBatch) -> torch.Tensor:
        """(P,) float64 log p(y | x) of the batch's pairs (row, label), differentiable."""
        log_p = self._log_softmax(batch.inputs).double()  # (B, K)
        rows = [row for row, labels in enumerate(batch.targets) for _ in labels]
        return log_p[rows, [label for labels in batch.targets for label in labels]]

    def _log_softmax(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        logits: torch.Tensor = self.model(**inputs).logits  # (B, C)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logits.log_softmax(-1)[:, self.columns]

    def _batches(
        self, texts: Sequence[str], batch_tokens: int, max_rows: int | None = None
    ) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
        shortened, truncated = truncate_texts(self.tokenizer, texts, self.max_text_tokens)
        self.truncated += truncated
        rendered = [self.task.render(text) for text in shortened]
        lengths = [len(ids) for ids in self.tokenizer(rendered)["input_ids"]]
        for rows in length_sorted_batches(lengths, batch_tokens, max_rows):
            # On the right: a head reads the first token, and padding before it would move the positions.
            inputs: Any = self.tokenizer(
                [rendered[row] for row in rows], padding=True, padding_side="right", return_tensors="pt"
            )
            yield rows, dict(inputs.to(self.model.device))


def head_columns(config: Any, labels: tuple[str, ...]) -> list[int]:
    """The head's column of each label, by name, or in order where the head has no names of its own.

    Raises:
        ModelError: the counts differ, or a label is not among the head's names.
    """
    names = [str(config.id2label[column]) for column in range(config.num_labels)]
    if len(names) != len(labels):
        raise ModelError(
            f"Expected the classification head to have the data's {len(labels)} labels, but it has {len(names)}."
        )
    if names == [f"LABEL_{column}" for column in range(len(names))]:
        return list(range(len(names)))
    missing = [label for label in labels if label not in names]
    if missing:
        raise ModelError(
            f"Expected the classification head to know label {missing[0]!r}, but its labels are {', '.join(names)}; "
            "give the data's label names as the model has them (--label_names)."
        )
    return [names.index(label) for label in labels]
