"""Labelled rows and a recipe with which a tiny model runs the whole algorithm in a second."""

from __future__ import annotations

import random

import datasets

from optimum_cpp.configuration import CPPConfig
from tiny_models import LABELS, PROMPT

WORDS = "sea shell path thorn leaf stone river cloud lamp table bread north".split()


def labelled_rows(count: int, seed: int, labels: tuple[str, ...] = LABELS) -> datasets.Dataset:
    """Distinct texts; each label has its own favourite words, and a third of the rows have another label."""
    generator = random.Random(seed)
    texts: dict[str, str] = {}
    while len(texts) < count:
        label = generator.randrange(len(labels))
        words = [WORDS[(2 * label + generator.randrange(4)) % len(WORDS)] for _ in range(generator.randint(2, 6))]
        texts.setdefault(" ".join([*words, str(generator.randrange(10**6))]), labels[label])
    rows = {"text": list(texts), "label": list(texts.values())}
    return datasets.Dataset.from_dict(rows)


def small_config(**changes: object) -> CPPConfig:
    """A recipe that a tiny model runs in a second."""
    values: dict[str, object] = {
        "label_names": LABELS,
        "prompt": PROMPT,
        "prune_rows": 16,
        "val_rows": 80,
        "conformal_rows": 60,
        "test_rows": "100",
        "alpha": "0.2",
        "lambda_grid": ("0", "0.3"),
    }
    return CPPConfig(**(values | changes))  # type: ignore[arg-type]
