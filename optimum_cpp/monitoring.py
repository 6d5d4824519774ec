"""Do recent rows still look like those that the quantile was computed on? The served model says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .configuration import CPPConfig
from .contract.canonical import from_hex
from .contract.claims import CalibrationClaim
from .data import SplitManifest, check_unused, clean_duplicates, parse_splits, text_digest
from .drift_report import DriftReport, Sample, judge, parse_level
from .errors import DataError, UsageError
from .filenames import MANIFEST_NAME
from .frozen import LabelScores
from .modeling import CPPModel, checked_texts
from .recipe import open_pool


def monitor(
    model: CPPModel | str | os.PathLike[str],
    texts: Sequence[str] | None = None,
    labels: Sequence[str | int | None] | None = None,
    *,
    dataset: Any = None,
    config: CPPConfig | None = None,
    level: str = "0.01",
    progress: bool = False,
) -> DriftReport:
    """Compare recent rows with the calibration rows of a model's contract.

    Rows without labels: their top probabilities and set sizes. Rows with labels: these, and the scores of
    the true labels, as a sample and in their order, and coverage. The level is shared out evenly among
    the tests (Bonferroni). Rows whose folded text an earlier row has are left out, because the contract
    speaks of rows without repetitions. Rows whose text the model has already seen are refused.

    Args:
        model: the served classifier, or its folder or Hub repository.
        texts: recent texts in the order in which they arrived; rows that somebody sorted, by label for
            example, are drift to the martingale.
        labels: name or number in the label space for each text; no labels, or all None, for unlabelled rows.
        dataset: labelled rows in place of `texts` and `labels`.
        config: columns and splits of `dataset`, the seed of the random ranks among tied scores, and for a
            folder `device_map` and `batch_tokens`.
        level: chance of an alarm without drift, a decimal string in (0, 1).
        progress: show a bar while texts are scored.

    Raises:
        DataError: no rows, rows of which only some have labels, an unknown label, or used rows.
        UsageError: a level outside (0, 1), or not exactly one of `texts` and `dataset`.
        ContractViolation: something that the contract froze has moved.
    """
    parse_level(level)
    if (texts is None) == (dataset is None) or (dataset is not None and labels is not None):
        raise UsageError("Expected either argument `texts`, with or without `labels`, or argument `dataset`.")
    recipe = config or CPPConfig()
    if not isinstance(model, CPPModel):
        model = CPPModel.from_pretrained(model, device_map=recipe.device_map, batch_tokens=recipe.batch_tokens)
    model.verify()
    if texts is None:
        splits, _ = parse_splits(recipe.split)
        pool = open_pool(dataset, recipe.replace(label_names=model.labels), split=splits)
        texts, labels = pool.texts, pool.labels
    texts, columns = _checked_rows(texts, labels, model.labels)
    manifest = SplitManifest.load(model.directory / MANIFEST_NAME)
    check_unused(map(text_digest, texts), manifest.used())
    kept, _ = clean_duplicates(texts, columns or [0] * len(texts), "drop", describe=str)
    scores = model.frozen.score([texts[row] for row in kept], "monitor" if progress else None)
    claim = model.contract.claims.calibration
    return judge(
        _new_sample(model, scores, [columns[row] for row in kept] if columns else None),
        _calibration_sample(claim),
        rank=claim.k,
        level=level,
        seed=recipe.seed,
        repeated=len(texts) - len(kept),
    )


def _checked_rows(
    texts: Sequence[str], labels: Sequence[str | int | None] | None, names: tuple[str, ...]
) -> tuple[list[str], list[int] | None]:
    """The texts, and the column of each label in the label space; None where no row has a label."""
    texts = checked_texts(texts)
    if not texts:
        raise DataError("Expected at least one row to monitor, but got none.")
    for row, text in enumerate(texts):
        if not text.strip():
            raise DataError(f"Expected every text to hold words, but text {row} is empty; remove or complete it.")
    if labels is None:
        return texts, None
    if len(labels) != len(texts):
        raise DataError(f"Expected a label for each of the {len(texts)} texts, but got {len(labels)}.")
    missing = [row for row, label in enumerate(labels) if label is None]
    if len(missing) == len(texts):
        return texts, None
    if missing:
        raise DataError(
            f"Expected all rows to have a label or none of them, but {len(missing)} of the {len(texts)} rows have "
            f"none, the first is row {missing[0]}; complete them, or leave them out."
        )
    return texts, [_column(row, label, names) for row, label in enumerate(labels)]


def _column(row: int, label: Any, names: tuple[str, ...]) -> int:
    if isinstance(label, str) and label in names:
        return names.index(label)
    if isinstance(label, (int, np.integer)) and not isinstance(label, bool) and 0 <= label < len(names):
        return int(label)
    shown = f"{', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
    raise DataError(
        f"Row {row} has label {label!r:.60}, which is not one of the {len(names)} label names ({shown}) or their "
        "numbers; correct it."
    )


def _new_sample(model: CPPModel, scores: LabelScores, columns: list[int] | None) -> Sample:
    sets = model.frozen.sets(scores, model.contract.claims.quantile)
    unlabelled = Sample(scores.probabilities.max(axis=1), sets.sum(axis=1))
    if columns is None:
        return unlabelled
    rows = np.arange(len(columns))
    return Sample(
        unlabelled.top_probabilities,
        unlabelled.set_sizes,
        scores.nonconformity[rows, columns],
        int(sets[rows, columns].sum()),
    )


def _calibration_sample(claim: CalibrationClaim) -> Sample:
    return Sample(
        np.array([from_hex(value) for value in claim.top_probabilities]),
        np.array(claim.set_sizes, dtype=np.int64),
        np.array([from_hex(value) for value in claim.scores]),
    )
