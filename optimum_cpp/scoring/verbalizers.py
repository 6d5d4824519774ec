"""Label scores of a decoder: the log-probability of each verbalizer's whole token sequence."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from ..data.tasks import ClassificationTask
from ..errors import ModelError
from ..progress import progress_bar
from .batching import default_batch_tokens, length_sorted_batches
from .cached import cached_edges
from .encoding import PromptEncoder, truncate_texts
from .examples import LabelledBatch, TargetBatch, check_finite
from .head import edge_log_probabilities, plain_head
from .packing import PackedBatch, attention_masks, pack
from .plain import PlainBatch, plain_batch, plain_log_p
from .trie import TokenTrie, build_trie

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

# Bytes of float32 vocabulary logits that one batch may hold where the model itself computes them.
LOGITS_BUDGET = 256 * 2**20

_PROBE_TEXT = "A probe text."
# How many of the longest labels are compared behind a short text, and behind one as long as allowed.
_PROBE_LABELS = (8, 2)


class VerbalizerScorer:
    """Scores labels with a causal language model (CPP paper, Eq. 1).

    `log p(y | x) = sum_t log p(v_t | x, v_<t)` over the verbalizer's tokens, with the prompt computed
    once and all labels packed behind it as a token trie. Where the packed pass does not agree with
    plain passes (checked on construction), the prompt is still computed once and its key-value cache
    is repeated for each label.

    Args:
        model: a causal language model in evaluation mode.
        tokenizer: its fast tokenizer.
        task: labels, verbalizers and prompt.
        max_text_tokens: longest text; only the text is ever truncated.
        length_normalize: divide by the verbalizer's number of tokens.
        batch_tokens: most tokens in a batch, padding included; by default what suits the model's device.
    """

    kind = "decoder"

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        task: ClassificationTask,
        *,
        max_text_tokens: int = 256,
        length_normalize: bool = False,
        batch_tokens: int | None = None,
    ) -> None:
        self.model, self.tokenizer, self.task = model, tokenizer, task
        self.max_text_tokens = max_text_tokens
        self.length_normalize = length_normalize
        self.batch_tokens = batch_tokens or default_batch_tokens(model.device)
        self.encoder = PromptEncoder(tokenizer, task, max_text_tokens)
        self.trie = build_trie(self.encoder.label_tokens)
        self.truncated = 0
        self._tries: dict[tuple[int, ...], TokenTrie] = {}
        self._label_matrix = self.trie.label_matrix(length_normalize)
        self._pad = next((int(i) for i in (tokenizer.pad_token_id, tokenizer.eos_token_id) if i is not None), 0)
        self._keeps_logits = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._head = plain_head(model, self._plain_batch_of(_PROBE_TEXT).inputs)
        self.packed = self._packed_agrees_with_plain()

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in the fixed order of the score columns."""
        return self.task.labels

    def describe(self) -> str:
        """How labels are scored, and a warning where one verbalizer begins another."""
        how = f"packed as a trie of {len(self.trie.tokens)} nodes"
        if not self.packed:
            how = "behind a cached prompt, since a packed pass differs on this model"
        text = f"{len(self.labels)} verbalizers {how}"
        pairs = self._prefix_pairs()
        if pairs:
            shorter, longer = (self.labels[label] for label in pairs[0])
            text += (
                f"; in {len(pairs)} pairs one verbalizer begins the other ({shorter!r}, {longer!r}), and under nll "
                "the longer one can never outrank the shorter"
            )
        return text

    def _prefix_pairs(self) -> list[tuple[int, int]]:
        """(shorter, longer) label columns where all tokens of one begin the other's."""
        paths = self.trie.label_edges
        return [
            (shorter, longer)
            for shorter, start in enumerate(paths)
            for longer, path in enumerate(paths)
            if shorter != longer and path[: len(start)] == start
        ]

    def label_token_ids(self) -> tuple[tuple[int, ...], ...]:
        """Each label's verbalizer tokens as the tokenizer gives them now."""
        return PromptEncoder(self.tokenizer, self.task, self.max_text_tokens).label_tokens

    def log_probabilities(self, texts: Sequence[str], *, description: str | None = None) -> npt.NDArray[np.float64]:
        """log p(y | x) of every label.

        Args:
            texts: N texts.
            description: what a progress bar on stderr is called; none is shown without it.

        Returns:
            (N, K) float64, columns in label order.

        Raises:
            ModelError: NaN or infinite scores; the row is named.
        """
        encoded = self.encoder.encode(texts)
        self.truncated += encoded.truncated
        scores = np.empty((len(texts), len(self.labels)))
        nodes = len(self.trie.tokens)
        batches = length_sorted_batches(
            [len(prompt) + nodes for prompt in encoded.prompts], self.batch_tokens, self._max_rows(self.trie)
        )
        with torch.inference_mode(), progress_bar(len(texts), description) as bar:
            for rows in batches:
                prompts = [encoded.prompts[row] for row in rows]
                scores[rows] = self._packed_scores(prompts) if self.packed else self._cached_scores(prompts)
                bar.update(len(rows))
        check_finite(scores)
        return scores

    def labelled_batches(
        self, texts: Sequence[str], labels: Sequence[int], batch_tokens: int, *, max_rows: int | None = None
    ) -> Iterator[LabelledBatch]:
        """Prompt + label of each row, jointly encoded, for activation statistics and saliency."""
        prompts = self.encoder.encode(texts).prompts
        yield from self._label_batches(prompts, list(enumerate(labels)), batch_tokens, max_rows)

    def _label_batches(
        self,
        prompts: Sequence[tuple[int, ...]],
        pairs: Sequence[tuple[int, int]],
        batch_tokens: int,
        max_rows: int | None,
    ) -> Iterator[PlainBatch]:
        """Prompt + label of each pair (row, label); the batches' rows number the pairs."""
        tokens = self.encoder.label_tokens
        sequences = [prompts[row] + tokens[label] for row, label in pairs]
        for places in length_sorted_batches([len(s) for s in sequences], batch_tokens, max_rows):
            label_lengths = [len(tokens[pairs[place][1]]) for place in places]
            yield plain_batch(
                [sequences[place] for place in places], label_lengths, tuple(places), self._pad, self.model.device
            )

    def target_batches(
        self,
        texts: Sequence[str],
        targets: Sequence[tuple[int, ...]],
        batch_tokens: int,
        *,
        max_rows: int | None = None,
    ) -> Iterator[TargetBatch]:
        """The prompts with only the wanted labels packed behind each, rows of as many labels together.

        Where packing does not work, each pair of a row and a label is a plain sequence of its own.
        """
        prompts = self.encoder.encode(texts).prompts
        if not self.packed:
            yield from self._unpacked_targets(prompts, targets, batch_tokens, max_rows)
            return
        tries = [self._trie_of(labels) for labels in targets]
        lengths = [len(prompt) + len(trie.tokens) for prompt, trie in zip(prompts, tries, strict=True)]
        for count in sorted({len(labels) for labels in targets}):
            group = [row for row, labels in enumerate(targets) if len(labels) == count]
            most = min(self._max_rows(tries[row]) for row in group)
            most = min(most, max_rows) if max_rows else most
            for places in length_sorted_batches([lengths[row] for row in group], batch_tokens, most):
                rows = tuple(group[place] for place in places)
                packed = pack([prompts[row] for row in rows], [tries[row] for row in rows], self._pad)
                yield TargetBatch(rows, tuple(targets[row] for row in rows), packed, packed.real.to(self.model.device))

    def _unpacked_targets(
        self,
        prompts: Sequence[tuple[int, ...]],
        targets: Sequence[tuple[int, ...]],
        batch_tokens: int,
        max_rows: int | None,
    ) -> Iterator[TargetBatch]:
        pairs = [(row, label) for row, labels in enumerate(targets) for label in labels]
        for batch in self._label_batches(prompts, pairs, batch_tokens, max_rows):
            rows = tuple(pairs[place][0] for place in batch.rows)
            yield TargetBatch(rows, tuple((pairs[place][1],) for place in batch.rows), batch, batch.real)

    def target_log_probabilities(self, batch: TargetBatch) -> torch.Tensor:
        """(P,) float64 log p(y | x) of the batch's pairs (row, label), differentiable."""
        if isinstance(batch.inputs, PackedBatch):
            return self._packed_log_p(batch.inputs)
        return self._plain_log_p(batch.inputs).double()

    def _trie_of(self, labels: tuple[int, ...]) -> TokenTrie:
        if labels not in self._tries:
            self._tries[labels] = build_trie([self.encoder.label_tokens[label] for label in labels])
        return self._tries[labels]

    def _max_rows(self, trie: TokenTrie) -> int:
        """Most rows whose logits fit the budget, where it is the model that computes them."""
        if self._head is not None:
            return sys.maxsize
        rows_of_logits = trie.num_queries if self._keeps_logits else self.max_text_tokens + len(trie.tokens)
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        return max(1, LOGITS_BUDGET // (4 * vocabulary * rows_of_logits))

    def _plain_log_p(self, batch: PlainBatch) -> torch.Tensor:
        return plain_log_p(self.model, batch, self.length_normalize, self._keeps_logits)

    def _packed_scores(self, prompts: list[tuple[int, ...]]) -> npt.NDArray[np.float64]:
        """(B, K) from one packed pass over prompts and all labels."""
        log_p = self._packed_log_p(pack(prompts, [self.trie] * len(prompts), self._pad))
        return np.asarray(log_p.reshape(len(prompts), -1).cpu().numpy())

    def _packed_log_p(self, batch: PackedBatch) -> torch.Tensor:
        """(P,) float64 log p(y | x) of the batch's pairs, from one packed pass."""
        device = self.model.device
        edges = self._edge_log_p(batch, device).double()
        paths, pairs = batch.path_edges.to(device), batch.path_pairs.to(device)
        log_p = edges.new_zeros(int(pairs[-1]) + 1).index_add(0, pairs, edges[paths])
        return log_p / pairs.bincount() if self.length_normalize else log_p

    def _edge_log_p(self, batch: PackedBatch, device: torch.device) -> torch.Tensor:
        """(E,) log-probabilities of the tries' edges, in float32 or better."""
        masks = attention_masks(self.model, batch)
        inputs: dict[str, Any] = {
            "input_ids": batch.input_ids.to(device),
            "position_ids": batch.position_ids.to(device),
            "attention_mask": {k: m.to(device) for k, m in masks.items()}
            if isinstance(masks, dict)
            else masks.to(device),
            "use_cache": False,
        }
        positions, queries, tokens = (t.to(device) for t in (batch.queries, batch.edge_queries, batch.edge_tokens))
        if self._head is not None:
            hidden = self.model.base_model(**inputs).last_hidden_state.flatten(0, 1)  # (B * S, d)
            return edge_log_probabilities(hidden[positions], self._head, queries, tokens)
        width = batch.real.shape[1]
        kept = width - int((positions % width).min()) if self._keeps_logits else width
        extra = {"logits_to_keep": kept} if self._keeps_logits else {}
        logits: torch.Tensor = self.model(**inputs, **extra).logits[:, -kept:]
        logits = logits[positions // width, positions % width - (width - kept)]  # (Q, V)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logits[queries, tokens] - logits.logsumexp(-1)[queries]

    def _cached_scores(self, prompts: list[tuple[int, ...]]) -> npt.NDArray[np.float64]:
        """(B, K) from one pass for each prompt and one pass over the labels behind its cache."""
        labels = self.encoder.label_tokens
        edges = [cached_edges(self.model, prompt, labels, self.trie, self._pad) for prompt in prompts]
        return np.stack(edges) @ self._label_matrix.T

    def _plain_batch_of(self, text: str) -> PlainBatch:
        """One prompt as an ordinary sequence."""
        (prompt,) = self.encoder.encode([text]).prompts
        return plain_batch([prompt], [0], (0,), self._pad, self.model.device)

    def plain_log_probabilities(self, prompt: tuple[int, ...], columns: Sequence[int]) -> npt.NDArray[np.float64]:
        """(len(columns),) by one ordinary sequence for each label, the prompt repeated: the reference."""
        tokens = [self.encoder.label_tokens[column] for column in columns]
        sequences, lengths = [prompt + t for t in tokens], [len(t) for t in tokens]
        batch = plain_batch(sequences, lengths, tuple(range(len(tokens))), self._pad, self.model.device)
        with torch.inference_mode():
            return np.asarray(self._plain_log_p(batch).double().cpu().numpy())

    def _packed_agrees_with_plain(self) -> bool:
        """Compare both ways on two probe texts; a model may treat a ready-made mask in its own way."""
        prompts = self.encoder.encode([_PROBE_TEXT, self._longest_probe()]).prompts
        longest = sorted(range(len(self.labels)), key=lambda label: -len(self.encoder.label_tokens[label]))
        columns = [longest[:count] for count in _PROBE_LABELS]
        plain = np.concatenate([self.plain_log_probabilities(*pair) for pair in zip(prompts, columns, strict=True)])
        if not np.isfinite(plain).all():
            raise ModelError(
                "Expected finite label scores, but the model gives NaN or infinite logits on a plain text; "
                "check its weights and dtype."
            )
        try:
            with torch.inference_mode():
                scores = self._packed_scores(list(prompts))
        except (RuntimeError, TypeError, ValueError) as error:
            logger.warning("This model does not run a packed pass (%s).", str(error).splitlines()[0])
            return False
        tolerance = max(1e-3, 4 * torch.finfo(self.model.dtype).eps)
        packed = np.concatenate([row[chosen] for row, chosen in zip(scores, columns, strict=True)])
        return bool(np.all(np.abs(packed - plain) <= tolerance * (1 + np.abs(plain))))

    def _longest_probe(self) -> str:
        """A text as long as any that is scored: a window too wide for shorter ones shows behind it."""
        positions = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        tokens = min(self.max_text_tokens, positions // 2) if positions else self.max_text_tokens
        texts, _ = truncate_texts(self.tokenizer, [" ".join([_PROBE_TEXT] * tokens)], tokens)
        return texts[0].rstrip()
