"""Evaluate a folder with a contract: on its manifest's test role, or on rows it has not seen."""

from __future__ import annotations

import os
from typing import Any

from .configuration import CPPConfig
from .conformal import ConformalQuantile
from .data import (
    Examples,
    RoleRows,
    SplitManifest,
    check_unused,
    clean_duplicates,
    parse_splits,
    roles_from_manifest,
    text_digest,
)
from .data.roles import take_rows
from .errors import DataError
from .filenames import MANIFEST_NAME
from .modeling import CPPModel
from .recipe import open_pool
from .results import ModelRow
from .writing import TestedModel, model_rows


def evaluate(model: CPPModel, *, dataset: Any = None, config: CPPConfig | None = None) -> ModelRow:
    """Coverage with its acceptance band, set size, accuracy and ECE.

    Args:
        model: the served classifier; its contract holds.
        dataset: rows to evaluate on; by default the test role of the split manifest.
        config: columns and splits of `dataset`, where they are not the usual ones.

    Raises:
        DataError: rows that the model has already seen, or no test role.
        ContractViolation: something that the contract froze has moved.
    """
    model.verify()
    manifest = SplitManifest.load(model.directory / MANIFEST_NAME)
    recipe = (config or CPPConfig()).replace(label_names=model.labels)
    examples = _unseen_rows(dataset, recipe, manifest) if dataset is not None else _test_role(recipe, manifest)
    claim = model.contract.claims.calibration
    quantile = ConformalQuantile(claim.alpha, claim.n, claim.k, model.contract.claims.quantile)
    evaluation = model.frozen.evaluate(examples, quantile.value, "evaluate")
    return model_rows([TestedModel("served", None, quantile, evaluation)])[0]


def _test_role(recipe: CPPConfig, manifest: SplitManifest) -> Examples:
    if not len(manifest.roles["test"]):
        raise DataError("Expected a test role in the split manifest, but it is empty; give rows with --dataset.")
    source = manifest.dataset
    if source.revision is None and not os.path.exists(source.id):
        raise DataError(
            f"Expected the test role's rows at {source.id!r}, as the split manifest says, but they are not there; "
            "run from the folder where they are, or give other rows with --dataset."
        )
    pool = open_pool(
        source.id,
        recipe.replace(text_column=source.text_column, label_column=source.label_column),
        revision=source.revision,
        split=source.splits,
    )
    return roles_from_manifest(pool, manifest).test


def _unseen_rows(dataset: Any, recipe: CPPConfig, manifest: SplitManifest) -> Examples:
    splits, _ = parse_splits(recipe.split)
    pool = open_pool(dataset, recipe, split=splits)
    check_unused(map(text_digest, pool.texts), manifest.used())
    kept, _ = clean_duplicates(pool.texts, pool.labels, recipe.on_duplicates or "drop", describe=pool.place)
    return take_rows(pool, RoleRows.of(pool, kept))
