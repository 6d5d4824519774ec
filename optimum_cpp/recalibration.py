"""A fresh quantile on new data, the model untouched: a new contract that names its predecessor."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from .blocks import named_matrices
from .configuration import CPPConfig
from .contract import Claims, ReliabilityContract, file_claims
from .contract.canonical import digest
from .contract.describe import frozen_digest, model_claim, score_claim, task_claim, transform_of
from .contract.signing import check_key
from .data import DataRoles, Ledger, draw_calibration_roles, parse_splits
from .errors import UsageError
from .filenames import CONTRACT_NAME
from .freezing import Freeze, freeze, score_noise, scorer_of
from .frozen import FrozenClassifier
from .loading import load_model, weights_digest
from .modeling import CPPModel, CPPResult, local_folder, scorer_of_claims
from .output import earlier_notes, write_output
from .pruning import PrunedMatrix
from .recipe import decide, open_pool, say_roles, used_rows
from .results import RunResults
from .scoring import fit_transform
from .stages import StageClock
from .staging import check_output, staged_directory
from .writing import TestedModel, calibration_claim, evaluation_claims, model_rows, run_record

logger = logging.getLogger(__name__)


def recalibrate(
    model_name_or_path: str | os.PathLike[str],
    *,
    config: CPPConfig,
    dataset: Any = None,
    save_directory: str | os.PathLike[str],
    overwrite: bool = False,
    sign: str | os.PathLike[str] | None = None,
) -> CPPResult:
    """Give a model a conformal quantile from rows that it has not seen.

    A folder with a contract keeps its prompt, labels and score, and the new contract names the old
    one; any other model is frozen as it is, its score fitted on val_cal rows of the same data.

    Args:
        model_name_or_path: a folder or Hub repository.
        config: alpha, sizes, columns and seed; prompt and score for a model without a contract.
        dataset: the new rows; by default `config.dataset`.
        save_directory: the new output folder.
        overwrite: replace an output folder that is not empty.
        sign: PEM file of an elliptic-curve private key with which the contract is signed.

    Raises:
        DataError: rows that were already used, or too few of them.
        UsageError: an output folder that is not empty, or splits for single roles.
    """
    if sign is not None:
        check_key(sign)
    check_output(save_directory, overwrite=overwrite, keep=(dataset if isinstance(dataset, str) else config.dataset,))
    folder = local_folder(model_name_or_path)
    old = ReliabilityContract.load(folder) if (folder / CONTRACT_NAME).is_file() else None
    if old is not None:
        config = _recipe_of(old.claims, config)
    roles = _draw(folder, config, dataset, needs_validation=old is None)
    say_roles(roles)
    clock, target = StageClock(), Path(save_directory)
    with staged_directory(target, overwrite=overwrite) as staging:
        with clock.stage("freeze"):
            if old is None:
                frozen, config = _freeze_plain(folder, roles, config, staging)
            else:
                frozen = _freeze_again(folder, old.claims, config, staging)
        changed = old is not None and _say_if_changed(old.claims, frozen)
        with clock.stage("calibrate"):
            conformal = frozen.classifier.open_conformal(roles)
            calibration = frozen.classifier.calibrate(conformal, config.alpha, "calibrate")
            noise = score_noise(frozen.classifier.scorer, conformal.texts)
        tested: tuple[TestedModel, ...] = ()
        if len(roles.test):
            with clock.stage("evaluate on test"):
                evaluation = frozen.classifier.evaluate(roles.test, calibration.quantile.value, "test")
                tested = (TestedModel("served", None, calibration.quantile, evaluation),)
        claims = Claims(
            schema=1,
            task=frozen.task,
            score=frozen.score,
            model=frozen.model,
            pruning=old.claims.pruning if old and not changed else None,
            selection=old.claims.selection if old and not changed else None,
            calibration=calibration_claim(calibration),
            manifest_digest=digest(roles.manifest.to_dict()),
            evaluation=evaluation_claims(tested),
            verdicts=None,
            predecessor=old.digest if old else None,
        )
        contract = ReliabilityContract(claims, run_record(frozen, calibration, tested, noise, clock))
        results = _results(str(model_name_or_path), roles, contract, tested, clock)
        write_output(
            staging, contract, roles.manifest, config, results, target.name,
            sign=sign, notes=earlier_notes(target, folder),
        )  # fmt: skip
    return CPPResult(CPPModel.around(frozen.classifier, contract, target), contract, results, target)


def _recipe_of(claims: Claims, config: CPPConfig) -> CPPConfig:
    """The recipe with what the contract keeps in force: labels, prompt, truncation and score."""
    return config.replace(
        label_names=claims.labels,
        prompt=claims.task.prompt,
        max_text_tokens=claims.task.max_text_tokens,
        length_normalize=claims.task.length_normalize,
        score=claims.score.name,
        allow_empty=claims.score.allow_empty,
    )


def _say_if_changed(claims: Claims, frozen: Freeze) -> bool:
    """Whether the weights are others than those of the old contract, whose pruning was of those."""
    changed = claims.model.weights_digest != frozen.model.weights_digest
    if changed:
        logger.warning(
            "The weights have changed since the old contract; the new one says nothing of how they were pruned and "
            "selected, and keeps the old label prior and temperature as constants of the score."
        )
    return changed


def _draw(folder: Path, config: CPPConfig, dataset: Any, *, needs_validation: bool) -> DataRoles:
    splits, role_splits = parse_splits(config.split)
    if role_splits:
        raise UsageError("Expected argument `split` to name splits to pool for a calibration, but it names roles.")
    history = used_rows(folder)
    return draw_calibration_roles(
        open_pool(dataset, config, split=splits),
        config.conformal_rows,
        "all" if config.test_rows == "all" else int(config.test_rows),
        seed=config.seed,
        used=history.used() if history else Ledger(),
        val_rows=config.val_rows if needs_validation else 0,
        on_duplicates=config.on_duplicates or "drop",
    )


def _freeze_plain(folder: Path, roles: DataRoles, config: CPPConfig, staging: Path) -> tuple[Freeze, CPPConfig]:
    """Freeze a model without a contract as it is; its score is fitted on val_cal."""
    loaded = load_model(folder, gguf_file=config.gguf_file, dtype=config.dtype, device_map=config.device_map)
    config, task = decide(config, roles, loaded.kind)
    scorer = scorer_of(loaded, task, config)
    log_p = scorer.log_probabilities(roles.val_cal.texts, description="val_cal")
    transform = fit_transform(str(config.score), config.temperature, log_p, np.asarray(roles.val_cal.labels))
    return freeze(loaded, task, transform, config, [], staging), config


def _freeze_again(folder: Path, claims: Claims, config: CPPConfig, staging: Path) -> Freeze:
    """Copy the files that loading reads, and freeze what they hold now with the old prompt and score."""
    for name in file_claims(folder):
        shutil.copy2(folder / name, staging / name)
    loaded = load_model(staging, device_map=config.device_map)
    scorer = scorer_of_claims(loaded, claims, config.batch_tokens)
    transform = transform_of(claims.score)
    old = claims.model.matrices
    described = (
        task_claim(scorer),
        score_claim(transform, claims.score.allow_empty),
        model_claim(
            staging,
            loaded.model,
            named_matrices(loaded.model, list(old)),
            [PrunedMatrix(name, matrix.size, matrix.zeros, matrix.damping) for name, matrix in old.items()],
            weights_digest(loaded.model),
        ),
    )
    classifier = FrozenClassifier(scorer, transform, claims.score.allow_empty, frozen_digest(*described))
    return Freeze(classifier, *described)


def _results(
    name: str, roles: DataRoles, contract: ReliabilityContract, tested: tuple[TestedModel, ...], clock: StageClock
) -> RunResults:
    claims = contract.claims
    matrices, pruning = claims.model.matrices, claims.pruning
    return RunResults(
        model=name,
        dataset=roles.manifest.dataset.id,
        task=claims.task.name,
        labels=claims.labels,
        base_pruner=pruning.base_pruner if pruning else None,
        sparsity=pruning.sparsity if pruning else "0",
        achieved_sparsity=sum(m.zeros for m in matrices.values()) / max(1, sum(m.size for m in matrices.values())),
        score=claims.score.name,
        alpha=claims.calibration.alpha,
        lam=pruning.lam if pruning else None,
        validation=(),
        dense_validation=None,
        test=model_rows(tested),
        verdicts={},
        matrices={name: matrix.zeros / matrix.size for name, matrix in matrices.items()},
        stages=tuple(clock.stages),
        truncated_texts=contract.record["truncated_texts"],
        digest=contract.digest,
    )
