"""Evaluate a folder with a contract: on its manifest's test role, or on rows it has not seen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from .configuration import CPPConfig
from .conformal import ConformalQuantile
from .data import (
    Pool,
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
    pool, rows = rows_to_evaluate(model, dataset=dataset, config=config)
    claim = model.contract.claims.calibration
    quantile = ConformalQuantile(claim.alpha, claim.n, claim.k, model.contract.claims.quantile)
    evaluation = model.frozen.evaluate(take_rows(pool, rows), quantile.value, "evaluate")
    return model_rows([TestedModel("served", None, quantile, evaluation)])[0]


def rows_to_evaluate(
    model: CPPModel, *, dataset: Any = None, config: CPPConfig | None = None, columns: Sequence[str] = ()
) -> tuple[Pool, RoleRows]:
    """The test role of the manifest, or the rows of `dataset`, in their pool; arguments and errors as in `evaluate`.

    Args:
        model: the served classifier; it is verified.
        dataset: rows that the model has not seen.
        config: columns and splits of `dataset`.
        columns: further columns to keep in the pool.
    """
    model.verify()
    manifest = SplitManifest.load(model.directory / MANIFEST_NAME)
    recipe = (config or CPPConfig()).replace(label_names=model.labels)
    if dataset is None:
        return _test_role(recipe, manifest, columns)
    splits, _ = parse_splits(recipe.split)
    pool = open_pool(dataset, recipe, split=splits, columns=columns)
    check_unused(map(text_digest, pool.texts), manifest.used())
    kept, _ = clean_duplicates(pool.texts, pool.labels, recipe.on_duplicates or "drop", describe=pool.place)
    return pool, RoleRows.of(pool, kept)


def _test_role(recipe: CPPConfig, manifest: SplitManifest, columns: Sequence[str]) -> tuple[Pool, RoleRows]:
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
        columns=columns,
    )
    roles_from_manifest(pool, manifest)  # refuses a pool in which the rows are not the manifest's
    return pool, manifest.roles["test"]
