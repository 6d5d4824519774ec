"""Everything the quickstart's pipeline starts from: a pool of rows on disk and a trained dense model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .corpus import generate_corpus, write_corpus
from .tiny_model import TrainingSummary, build_model, build_tokenizer, train_model

VOCAB = 1024
PROMPT = "{text}\nCategory:"


@dataclass(frozen=True)
class QuickstartSize:
    """How large the quickstart's model, training and data roles are."""

    layers: int
    hidden: int
    ffn: int
    train_rows: int
    steps: int
    batch_rows: int
    learning_rate: float
    prune_rows: int
    val_rows: int
    conformal_rows: int
    test_rows: int

    @property
    def pool_rows(self) -> int:
        """Rows of all data roles together."""
        return self.prune_rows + self.val_rows + self.conformal_rows + self.test_rows


NORMAL = QuickstartSize(
    layers=4,
    hidden=192,
    ffn=512,
    train_rows=16_000,
    steps=500,
    batch_rows=32,
    learning_rate=2e-3,
    prune_rows=256,
    val_rows=256,
    conformal_rows=512,
    test_rows=2000,
)
FAST = QuickstartSize(
    layers=3,
    hidden=128,
    ffn=256,
    train_rows=8_000,
    steps=250,
    batch_rows=32,
    learning_rate=3e-3,
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


def make_quickstart_assets(
    directory: str | os.PathLike[str], *, fast: bool = False, seed: int = 0, size: QuickstartSize | None = None
) -> QuickstartAssets:
    """Generate the corpus, train the dense model, and write `pool.jsonl` and `dense/` into a folder.

    Takes about a minute on two cores, with `fast` a quarter of that, and no network.
    """
    target = Path(directory)
    size = FAST if fast else NORMAL
    corpus = generate_corpus(size.train_rows + size.pool_rows, seed)
    train = corpus.rows(0, size.train_rows)
    pool = corpus.rows(size.train_rows, len(corpus))
    write_corpus(pool, target / "pool.jsonl")

    train_labels = train.names()
    joined = [PROMPT.replace("{text}", text) + " " + label for text, label in zip(train.texts, train_labels)]
    tokenizer = build_tokenizer(joined + [" " + n for n in corpus.label_names] * 4000, vocab_size=VOCAB)
    model = build_model(tokenizer, layers=size.layers, hidden=size.hidden, ffn=size.ffn, seed=seed)
    training = train_model(
        model,
        tokenizer,
        train.texts,
        train.labels,
        corpus.label_names,
        PROMPT,
        steps=size.steps,
        batch_rows=size.batch_rows,
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
        train_labels=train_labels,
        training=training,
    )
