"""What a recipe leaves open and the data or the model decides: the pool, the task, the score, the history."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .configuration import CPPConfig
from .contract import ReliabilityContract, require, verify_manifest
from .data import (
    ClassificationTask,
    DataRoles,
    Pool,
    SplitManifest,
    check_unused,
    encoder_task,
    load_pool,
    resolve_task,
    text_digest,
)
from .errors import UsageError
from .filenames import CONTRACT_NAME, MANIFEST_NAME

logger = logging.getLogger(__name__)


def open_pool(
    dataset: Any,
    config: CPPConfig,
    *,
    revision: str | None = None,
    split: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> Pool:
    """The labelled rows that a recipe names, or those of `dataset`, with further columns.

    Raises:
        UsageError: neither is given.
        DataError: the rows cannot be read.
    """
    source = dataset if dataset is not None else config.dataset
    if source is None:
        raise UsageError("Expected argument `dataset` to name labelled rows, but it is not given.")
    return load_pool(
        source,
        revision=revision or config.dataset_revision,
        split=split,
        text_column=config.text_column,
        label_column=config.label_column,
        label_names=config.label_names,
        columns=columns,
    )


def decide(config: CPPConfig, roles: DataRoles, kind: str) -> tuple[CPPConfig, ClassificationTask]:
    """The task, and the recipe with its score decided; both are printed.

    Raises:
        UsageError: a prompt, task or verbalizers that do not fit.
    """
    names = roles.label_names
    if kind == "encoder":
        task, sentence = encoder_task(label_names=names, prompt=config.prompt)
    else:
        task, sentence = resolve_task(
            task=config.task,
            dataset=roles.manifest.dataset.id,
            label_names=names,
            prompt=config.prompt,
            verbalizers=config.verbalizers,
        )
    score = config.score or ("nll" if kind == "encoder" else "prior_nll")
    logger.info("%s", sentence)
    logger.info("Score %s.", score)
    return config.replace(score=score), task


def say_roles(roles: DataRoles) -> None:
    """How many rows each role has, and where that is not what was asked for."""
    logger.info("%s", roles)
    for exception in roles.manifest.exceptions:
        logger.warning("%s", exception)


def used_rows(model_name_or_path: str | os.PathLike[str], revision: str | None = None) -> SplitManifest | None:
    """The split manifest of a model, which says what rows it has seen; None for a model without one.

    Raises:
        ContractViolation: a folder whose contract names another manifest than the one it holds, or
            whose manifest is gone: then nobody knows what rows were used.
    """
    folder = _folder_of(model_name_or_path, revision)
    if folder is None:
        return None
    if (folder / CONTRACT_NAME).is_file():
        require((verify_manifest(folder, ReliabilityContract.load(folder).claims),))
    path = folder / MANIFEST_NAME
    return SplitManifest.load(path) if path.is_file() else None


def _folder_of(name: str | os.PathLike[str], revision: str | None) -> Path | None:
    """The model's own folder; of a Hub model, the cached one that loading it has filled."""
    if not os.fspath(name):
        return None
    if os.path.isdir(name):
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(os.fspath(name), revision=revision, allow_patterns=[MANIFEST_NAME, CONTRACT_NAME])
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError):
        # A local file name that is no folder, or a machine without network: loading itself says more.
        return None


def check_history(roles: DataRoles, history: SplitManifest | None, training_texts: Iterable[str]) -> None:
    """Enter earlier uses of rows in the manifest's ledger, and refuse conformal or test rows among them.

    Raises:
        DataError: conformal or test rows that were trained on, or used in an earlier run.
    """
    manifest = roles.manifest.with_training_texts(map(text_digest, training_texts))
    if history is not None:
        evaluated = [text for role in ("conformal", "test") for text in manifest.roles[role].texts]
        check_unused(evaluated, history.used())
        manifest = dataclasses.replace(manifest, ledger=manifest.ledger.merged(history.used()))
    roles.manifest = manifest
