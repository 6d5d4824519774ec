"""`CPPPruner`, the public face of the algorithm, and the CPP paper's own call."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .algorithm import run
from .configuration import CPPConfig
from .contract.signing import check_key
from .data import DataRoles, RoleSizes, draw_roles, parse_splits, roles_from_datasets
from .decimals import decimal_string
from .errors import UsageError
from .evaluation import evaluate
from .hub import push_to_hub
from .loading import LoadedModel, classifier_kind, load_model
from .modeling import CPPModel, CPPResult
from .output import earlier_notes, write_output
from .recalibration import recalibrate
from .recipe import check_history, decide, open_pool, say_roles, used_rows
from .results import ModelRow
from .staging import check_output, staged_directory

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class CPPPruner:
    """Makes a classifier sparse and hands it over with valid prediction sets.

    Example:
        ```python
        config = CPPConfig(base_pruner="wanda", sparsity="0.5", alpha="0.1")
        pruner = CPPPruner.from_pretrained("HuggingFaceTB/SmolLM2-135M-Instruct", task="dbpedia_14")
        roles = pruner.get_data_roles("fancyzhx/dbpedia_14", config=config)
        result = pruner.prune(config=config, roles=roles, save_directory="out")
        result.model.predict_set(["Some text"])
        ```

    Attributes:
        loaded: the dense model, tokenizer and kind.
        task: name of a preset that overrides the recipe's, or None.
        output: the folder that `prune` wrote last, or None.
    """

    def __init__(self, loaded: LoadedModel, *, task: str | None = None) -> None:
        self.loaded, self.task = loaded, task
        self.output: Path | None = None

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str | os.PathLike[str],
        *,
        task: str | None = None,
        revision: str | None = None,
        gguf_file: str | None = None,
        dtype: str = "auto",
        device_map: Any = None,
    ) -> CPPPruner:
        """Load a causal language model, or an encoder with a classification head.

        Raises:
            ModelError: it cannot be opened, or is not a classifier that can be scored.
        """
        loaded = load_model(
            model_name_or_path, revision=revision, gguf_file=gguf_file, dtype=dtype, device_map=device_map
        )
        return cls(loaded, task=task)

    @classmethod
    def from_config(cls, model_name_or_path: str | os.PathLike[str], config: CPPConfig) -> CPPPruner:
        """Load a model as a recipe says (revision, GGUF file, dtype, device map)."""
        return cls.from_pretrained(
            model_name_or_path,
            revision=config.model_revision,
            gguf_file=config.gguf_file,
            dtype=config.dtype,
            device_map=config.device_map,
        )

    def get_data_roles(self, dataset: Any = None, *, config: CPPConfig, revision: str | None = None) -> DataRoles:
        """The five data roles, drawn from one labelled pool; see `get_data_roles`."""
        return get_data_roles(dataset, config=config, revision=revision)

    def prune(
        self,
        *,
        config: CPPConfig,
        roles: DataRoles | None = None,
        save_directory: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
        training_texts: Iterable[str] = (),
        sign: str | os.PathLike[str] | None = None,
    ) -> CPPResult:
        """Run Algorithm 1: prune, select on validation, freeze, calibrate, evaluate.

        Args:
            config: the recipe.
            roles: the data roles; by default drawn from `config.dataset`.
            save_directory: output folder; without it, a new one under the system's temporary directory.
            overwrite: replace an output folder that is not empty.
            training_texts: texts that any training touched; their digests are entered in the ledger, and
                refused where they are conformal or test rows.
            sign: PEM file of an elliptic-curve private key with which the contract is signed.

        Raises:
            UsageError: an output folder that is not empty, or an argument out of range.
            DataError: data that does not fit.
            ModelError: a model that cannot be scored or pruned.
        """
        if sign is not None:
            check_key(sign)
        if save_directory is not None:
            check_output(save_directory, overwrite=overwrite, keep=(self.loaded.name or None, config.dataset))
        roles = roles if roles is not None else self.get_data_roles(config=config)
        check_history(roles, used_rows(self.loaded.name, self.loaded.revision), training_texts)
        if self.task is not None:
            config = config.replace(task=self.task)
        config, task = decide(config, roles, self.loaded.kind)
        say_roles(roles)
        target = Path(save_directory) if save_directory is not None else _temporary_target()
        with staged_directory(target, overwrite=overwrite) as staging:
            with tempfile.TemporaryDirectory(dir=staging, prefix=".work-") as work:
                outcome = run(self.loaded, task, roles, config, folder=staging, work=Path(work))
            write_output(
                staging, outcome.contract, roles.manifest, config, outcome.results, target.name,
                sign=sign, notes=earlier_notes(target),
            )  # fmt: skip
        self.output = target
        model = CPPModel.around(outcome.classifier, outcome.contract, target)
        return CPPResult(model, outcome.contract, outcome.results, target)

    def recalibrate(
        self,
        *,
        config: CPPConfig,
        dataset: Any = None,
        save_directory: str | os.PathLike[str],
        overwrite: bool = False,
    ) -> CPPResult:
        """A fresh quantile on rows that the model has not seen; see `recalibrate`."""
        return recalibrate(
            self.loaded.name, config=config, dataset=dataset, save_directory=save_directory, overwrite=overwrite
        )

    def evaluate(self, *, dataset: Any = None, config: CPPConfig | None = None) -> ModelRow:
        """Evaluate a folder that holds a contract; see `evaluate`."""
        return evaluate(self.served, dataset=dataset, config=config)

    def predict_set(self, texts: str | Sequence[str]) -> list[dict[str, Any]]:
        """Prediction sets of a folder that holds a contract; see `CPPModel.predict_set`."""
        return self.served.predict_set(texts)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the folder that was written last, or else the one that was loaded; see `push_to_hub`."""
        return push_to_hub(self.output or self.loaded.name, repo_id, **options)

    @cached_property
    def served(self) -> CPPModel:
        """The classifier with the contract of its folder.

        Raises:
            ContractViolation: the folder holds no contract, or it does not hold.
        """
        return CPPModel.from_pretrained(self.loaded.name)


def get_data_roles(dataset: Any = None, *, config: CPPConfig, revision: str | None = None) -> DataRoles:
    """Draw the five disjoint roles (method: data roles), the conformal one locked.

    Args:
        dataset: Hub id, folder, file or `datasets` object; by default `config.dataset`.
        config: sizes, columns, seed and duplicate policy.
        revision: commit or tag on the Hub; by default `config.dataset_revision`.

    Raises:
        DataError: data that cannot be read or is too small; rows and columns are named.
        UsageError: neither a data set nor `config.dataset`.
    """
    pooled, role_splits = parse_splits(config.split)
    pool = open_pool(dataset, config, revision=revision, split=pooled)
    sizes = RoleSizes(
        prune=config.prune_rows,
        val=config.val_rows,
        conformal=config.conformal_rows,
        test="all" if config.test_rows == "all" else int(config.test_rows),
    )
    return draw_roles(
        pool,
        sizes,
        seed=config.seed,
        on_duplicates=config.on_duplicates or "drop",
        role_splits=role_splits or None,
    )


class CalibrationPreservingPruner:
    """The CPP paper's own call: `pruned, q = CalibrationPreservingPruner(...).prune()`.

    Args:
        model: Hub id, folder, or a transformers model (then with `tokenizer`).
        prune_dataset: labelled rows for saliency and statistics.
        validation_dataset: labelled rows, halved into val_cal and val_eval.
        conformal_dataset: labelled rows for the quantile, read only after the freeze.
        target_sparsity: share of each matrix to prune.
        target_coverage: 1 - alpha.
        lambda_grid: weights of the saliency to try; must hold 0.
        base_pruner: base pruner.
        tokenizer: of a model given as an object.
        test_dataset: labelled rows for evaluation only.
        save_directory: output folder.
        options: further fields of `CPPConfig`; the score is the paper's `nll` unless given.
    """

    def __init__(
        self,
        *,
        model: str | os.PathLike[str] | PreTrainedModel,
        prune_dataset: str | Dataset,
        validation_dataset: str | Dataset,
        conformal_dataset: str | Dataset,
        target_sparsity: float | str = "0.5",
        target_coverage: float | str = "0.9",
        lambda_grid: Sequence[float | str] = (0, 0.1, 0.3, 0.5),
        base_pruner: str = "sparsegpt",
        tokenizer: PreTrainedTokenizerBase | None = None,
        test_dataset: str | Dataset | None = None,
        save_directory: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        self.config = CPPConfig(
            **{
                "score": "nll",
                "sparsity": target_sparsity,
                "alpha": str(1 - Decimal(decimal_string("target_coverage", target_coverage))),
                "lambda_grid": tuple(lambda_grid),
                "base_pruner": base_pruner,
                **options,
            }
        )
        self.datasets = {
            "prune": prune_dataset,
            "validation": validation_dataset,
            "conformal": conformal_dataset,
            "test": test_dataset,
        }
        self.pruner = _pruner_of(model, tokenizer, self.config)
        self.save_directory = save_directory

    def prune(self) -> tuple[CPPModel, float]:
        """The pruned classifier and its conformal quantile."""
        roles = roles_from_datasets(
            **self.datasets,
            text_column=self.config.text_column,
            label_column=self.config.label_column,
            label_names=self.config.label_names,
            seed=self.config.seed,
            on_duplicates=self.config.on_duplicates or "error",
        )
        result = self.pruner.prune(config=self.config, roles=roles, save_directory=self.save_directory)
        return result.model, result.contract.claims.quantile


def _temporary_target() -> Path:
    """A folder of its own under the system's temporary directory, for results that are not saved."""
    return Path(tempfile.mkdtemp(prefix="optimum-cpp-")) / "model"


def _pruner_of(model: Any, tokenizer: Any, config: CPPConfig) -> CPPPruner:
    if isinstance(model, (str, os.PathLike)):
        return CPPPruner.from_config(model, config)
    if tokenizer is None:
        raise UsageError("Expected argument `tokenizer` beside a model object, but it is not given.")
    return CPPPruner(
        LoadedModel(model.eval(), tokenizer, classifier_kind(model.config), model.config._name_or_path, None)
    )
