"""Everything the quickstart's pipeline starts from: a pool of rows on disk and a trained dense model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .corpus import generate_corpus, write_corpus
from .tiny_model import TrainingSummary, build_model, build_tokenizer, train_model

PROMPT = "{text}\nCategory:"


@dataclass(frozen=True)
class QuickstartSize:
    """How large the quickstart's model, training and data roles are."""

    vocab_size: int
    layers: int
    hidden: int
    ffn: int
    train_rows: int
    steps: int
    learning_rate: float
    prune_rows: int
    val_rows: int
    conformal_rows: int
    test_rows: int

    @property
    def pool_rows(self) -> int:
        """Rows of all data roles together."""
        return self.prune_rows + self.val_rows + self.conformal_rows + self.test_rows


# A model of 180 thousand weights and words split into pieces: large enough to learn the task in a minute,
# small enough that it needs its weights. Wider models with whole words lose next to nothing at 60 %.
NORMAL = QuickstartSize(
    vocab_size=512,
    layers=4,
    hidden=64,
    ffn=128,
    train_rows=16_000,
    steps=800,
    learning_rate=6e-3,
    prune_rows=256,
    val_rows=256,
    conformal_rows=512,
    test_rows=2000,
)
FAST = QuickstartSize(
    vocab_size=640,
    layers=3,
    hidden=64,
    ffn=128,
    train_rows=8_000,
    steps=320,
    learning_rate=8e-3,
    prune_rows=64,
    val_rows=128,
    conformal_rows=256,
    test_rows=500,
)


@dataclass(frozen=True)
class QuickstartAssets:
    """What `make_quickstart_assets` made.

    Attributes:
        model_directory: folder of the dense model and its tokenizer.
        pool_path: jsonl file (`text`, `label`) that holds exactly the rows of the data roles.
        size: sizes of the model, the training and the roles.
        label_names: the labels in order; each is its own verbalizer.
        prompt: the prompt that the model was trained with; a space and the label follow it.
        train_texts: texts of the training rows, none of which is in the pool.
        train_labels: names of their labels.
        training: what the training did.
    """

    model_directory: Path
    pool_path: Path
    size: QuickstartSize
    label_names: tuple[str, ...]
    prompt: str
    train_texts: tuple[str, ...]
    train_labels: tuple[str, ...]
    training: TrainingSummary


def make_quickstart_assets(directory: str | os.PathLike[str], *, fast: bool = False, seed: int = 0) -> QuickstartAssets:
    """Generate the corpus, train the dense model, and write `pool.jsonl` and `dense/` into a folder.

    Takes about a minute on one core, with `fast` a third of that, and no network.
    """
    target = Path(directory)
    size = FAST if fast else NORMAL
    corpus = generate_corpus(size.train_rows + size.pool_rows, seed)
    train = corpus.rows(0, size.train_rows)
    write_corpus(corpus.rows(size.train_rows, len(corpus)), target / "pool.jsonl")
    # The labels stand among the texts often enough for each of their words to become one token.
    label_lines = [f"{PROMPT[len('{text}') :]} {name}" for name in corpus.label_names] * (size.train_rows // 4)
    tokenizer = build_tokenizer([*train.texts, *label_lines], vocab_size=size.vocab_size)
    model = build_model(tokenizer, layers=size.layers, hidden=size.hidden, ffn=size.ffn, seed=seed)
    training = train_model(
        model,
        tokenizer,
        train.texts,
        train.labels,
        corpus.label_names,
        PROMPT,
        steps=size.steps,
        learning_rate=size.learning_rate,
        seed=seed,
    )
    model.save_pretrained(target / "dense")
    tokenizer.save_pretrained(target / "dense")
    return QuickstartAssets(
        model_directory=target / "dense",
        pool_path=target / "pool.jsonl",
        size=size,
        label_names=corpus.label_names,
        prompt=PROMPT,
        train_texts=train.texts,
        train_labels=train.names(),
        training=training,
    )
