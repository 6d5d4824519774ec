"""`CPPConfig`: every option of a run, written once.

Each field carries its type, default, choices and help text; the command line, the saved recipe
(`cpp_config.json`) and the checks of values are all derived from this one table. The module imports
nothing heavy, because `optimum-cli` builds its parsers from it at every start.
"""

from __future__ import annotations

import dataclasses
import json
import numbers
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from .decimals import decimal_string
from .errors import DataError, UsageError
from .filenames import CONFIG_NAME
from .registry import BASE_PRUNERS, SCORES
from .strict_json import parse_json

# Fields that take numbers as well as their text; `test_rows` and `temperature` take words too.
_DECIMALS = ("alpha", "sparsity", "epsilon_size", "ltt_delta", "ltt_risk", "test_rows", "temperature")

_COUNTS = (
    "prune_rows",
    "val_rows",
    "conformal_rows",
    "max_text_tokens",
    "batch_tokens",
    "top_k",
    "num_sketches",
    "saliency_memory",
)

SALIENCIES = ("true", "top_k", "threshold", "all", "snip")
ESTIMATORS = ("exact", "rademacher")
IMPORTANCE_SCALES = ("square", "root")
SELECTIONS = ("guardrail", "learn_then_test")
DTYPES = ("auto", "float32", "bfloat16", "float16")
DUPLICATE_POLICIES = ("drop", "error", "report")


def _option(default: Any, help: str, *, group: str, **metadata: Any) -> Any:
    """One row of the table: a dataclass field with its help text and command-line details."""
    return field(default=default, metadata={"help": help, "group": group, **metadata})


@dataclass(frozen=True)
class CPPConfig:
    """The recipe of one run of Algorithm 1 (CPP paper); saved as `cpp_config.json`.

    Numbers that decide (`alpha`, `sparsity`, the values of `lambda_grid`) are kept as decimal
    strings, so that the counts and ranks computed from them are exact.

    Raises:
        UsageError: a value outside its range or choices; the sentence names the field.
    """

    # --- data ---------------------------------------------------------------------------------
    dataset: str | None = _option(
        None, "Hub id, local folder, or csv/jsonl/parquet file of the labelled pool.", group="data"
    )
    dataset_revision: str | None = _option(None, "Commit or tag of the data set on the Hub.", group="data")
    split: tuple[str, ...] = _option(
        (),
        "Splits to pool (default: all), or a split for each role: "
        "prune=validation val=validation conformal=test test=test.",
        group="data",
        metavar="SPLIT",
    )
    text_column: str | None = _option(None, "Column of the texts (default: found).", group="data")
    label_column: str | None = _option(None, "Column of the labels (default: found).", group="data")
    label_names: tuple[str, ...] = _option(
        (), "Label names in order, when the data set does not name them.", group="data", metavar="NAME"
    )
    prune_rows: int = _option(1024, "Rows for saliency and activation statistics.", group="data")
    val_rows: int = _option(1024, "Rows for validation, halved into val_cal and val_eval.", group="data")
    conformal_rows: int = _option(1024, "Rows for the final quantile.", group="data")
    test_rows: str = _option("5000", "Rows for evaluation: a number, or 'all' that are left.", group="data")
    on_duplicates: str | None = _option(
        None,
        "Rows with equal folded texts: drop (default for a pool), error (default for separate data sets), or report.",
        group="data",
        choices=DUPLICATE_POLICIES,
    )

    # --- task ---------------------------------------------------------------------------------
    task: str | None = _option(
        None,
        "Preset of prompt and verbalizers: ag_news, trec, dbpedia_14, banking77, clinc150.",
        group="task",
    )
    prompt: str | None = _option(
        None, "Prompt with {text}, and {labels} where the labels are to be listed.", group="task"
    )
    verbalizers: str | None = _option(
        None,
        "JSON or YAML file, label -> words; or 'words' (default) or 'names' for the labels as given.",
        group="task",
    )
    max_text_tokens: int = _option(256, "Longest text in tokens; only the text is truncated.", group="task")

    # --- score and calibration ----------------------------------------------------------------
    alpha: str = _option("0.1", "Allowed miscoverage; sets cover with probability 1 - alpha.", group="score")
    score: str | None = _option(
        None,
        "Nonconformity score (default: prior_nll for decoders, nll for encoders).",
        group="score",
        choices=SCORES,
    )
    temperature: str = _option("none", "'none', 'fit' (on val_cal), or a positive number.", group="score")
    length_normalize: bool = _option(
        False, "Divide a verbalizer's log-probability by its number of tokens.", group="score"
    )
    allow_empty: bool = _option(True, "Keep empty prediction sets; otherwise they hold the top label.", group="score")
    epsilon_size: str = _option("0.5", "Slack in labels for the efficiency line of the contract.", group="score")

    # --- pruning ------------------------------------------------------------------------------
    base_pruner: str = _option("wanda", "Base pruner.", group="pruning", choices=BASE_PRUNERS)
    sparsity: str = _option("0.5", "Share of each matrix to prune, in [0, 1).", group="pruning")
    saliency: str = _option(
        "true",
        "Labels whose scores give the gradients: the true one, the k with the smallest scores, those near the dense "
        "quantile, or all; snip is the true label with absolute in place of squared gradients.",
        group="pruning",
        choices=SALIENCIES,
    )
    top_k: int = _option(3, "Labels of each example under saliency top_k.", group="pruning")
    saliency_score: str = _option("nll", "Which score is differentiated.", group="pruning", choices=SCORES)
    importance_scale: str = _option(
        "square",
        "Importance of a weight: 'square' of weight times gradient (the paper), or its 'root', on Wanda's scale.",
        group="pruning",
        choices=IMPORTANCE_SCALES,
    )
    estimator: str = _option(
        "exact",
        "'exact' takes a backward pass for each label of an example; 'rademacher' estimates all labels of a batch "
        "from one backward pass with random signs.",
        group="pruning",
        choices=ESTIMATORS,
    )
    saliency_memory: int | None = _option(
        None,
        "Most MiB of gradient sums in memory; the blocks then go in groups, each with passes of its own "
        "(default: all at once).",
        group="pruning",
    )
    num_sketches: int = _option(1, "Backward passes of a batch under rademacher, averaged.", group="pruning")
    lambda_grid: tuple[str, ...] = _option(
        ("0", "0.1", "0.3", "0.5", "1"),
        "Weights of the saliency to try; must hold 0, the base pruner alone; 1 is the saliency alone.",
        group="pruning",
        metavar="LAMBDA",
    )
    target_modules: tuple[str, ...] = _option(
        (),
        "Names (or endings of names) of the matrices to prune (default: found).",
        group="pruning",
        metavar="NAME",
    )
    ignore: tuple[str, ...] = _option(
        (), "Names (or endings of names) of matrices to keep dense.", group="pruning", metavar="NAME"
    )

    # --- selection ----------------------------------------------------------------------------
    selection: str = _option("guardrail", "Rule that chooses lambda.", group="selection", choices=SELECTIONS)
    ltt_risk: str | None = _option(None, "Top-1 error allowed under learn_then_test.", group="selection")
    ltt_delta: str = _option("0.1", "Error level of learn_then_test.", group="selection")

    # --- run ----------------------------------------------------------------------------------
    gguf_file: str | None = _option(None, "GGUF file inside the model folder.", group="run")
    model_revision: str | None = _option(None, "Commit or tag of the model on the Hub.", group="run")
    dtype: str = _option("auto", "Weights' dtype; auto is the checkpoint's own.", group="run", choices=DTYPES)
    device_map: str | None = _option(None, "Where the model lives, as in Accelerate.", group="run")
    batch_tokens: int | None = _option(
        None, "Most tokens in one batch, padding included (default: 512 on a CPU, 4096 elsewhere).", group="run"
    )
    seed: int = _option(0, "Seed of every random choice.", group="run")

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            self._check_type(item)
            choices = item.metadata.get("choices")
            value = getattr(self, item.name)
            if choices and value is not None and value not in choices:
                raise UsageError(
                    f"Expected argument `{item.name}` to be one of {', '.join(choices)}, but got {value!r}."
                )
            if isinstance(item.default, tuple):
                if isinstance(value, str) or not isinstance(value, Sequence):
                    raise UsageError(f"Expected argument `{item.name}` to be a list, but got {value!r}.")
                object.__setattr__(self, item.name, tuple(str(entry) for entry in value))
        for name in ("alpha", "sparsity", "epsilon_size", "ltt_delta"):
            self._set_decimal(name)
        if self.ltt_risk is not None:
            self._set_decimal("ltt_risk")
        self._check_ranges()

    def _check_type(self, item: dataclasses.Field[Any]) -> None:
        """Text, whole number or flag, as the default says; decimals and lists are converted later."""
        value, default = getattr(self, item.name), item.default
        if isinstance(default, tuple) or item.name in _DECIMALS or (value is None and default is None):
            return
        kind = kind_of(item)
        if kind is str and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if kind is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
            value = int(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            name = {str: "text", int: "a whole number", bool: "True or False"}[kind]
            raise UsageError(f"Expected argument `{item.name}` to be {name}, but got {value!r:.60}.")
        object.__setattr__(self, item.name, value)

    def _set_decimal(self, name: str) -> None:
        object.__setattr__(self, name, decimal_string(name, getattr(self, name)))

    def _check_estimator(self) -> None:
        if self.saliency == "snip":
            for name, default in (("estimator", "exact"), ("importance_scale", "square")):
                if getattr(self, name) != default:
                    raise UsageError(
                        f"Expected the default `{name}` with saliency snip, a mean of absolute values, but got "
                        f"{getattr(self, name)}."
                    )
        if self.estimator == "exact" and self.num_sketches != 1:
            raise UsageError(
                f"Expected argument `num_sketches` only with estimator rademacher, but got {self.num_sketches} with "
                "exact."
            )

    def _check_ranges(self) -> None:
        if not 0 < Fraction(self.alpha) < 1:
            raise UsageError(f"Expected argument `alpha` to lie in (0, 1), but got {self.alpha}.")
        if not 0 <= Fraction(self.sparsity) < 1:
            raise UsageError(f"Expected argument `sparsity` to lie in [0, 1), but got {self.sparsity}.")
        if Fraction(self.epsilon_size) < 0:
            raise UsageError(f"Expected argument `epsilon_size` to be at least 0, but got {self.epsilon_size}.")
        self._check_lambda_grid()
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"Expected argument `{name}` to be a whole number above 0, but got {value!r}.")
        self._check_estimator()
        if self.val_rows % 2:
            raise UsageError(f"Expected argument `val_rows` to be even, since it is halved, but got {self.val_rows}.")
        object.__setattr__(self, "test_rows", str(self.test_rows))
        if self.test_rows != "all" and not re.fullmatch(r"\d{1,12}", self.test_rows, flags=re.ASCII):
            raise UsageError(
                f"Expected argument `test_rows` to be a whole number or 'all', but got {self.test_rows!r}."
            )
        object.__setattr__(self, "temperature", str(self.temperature))
        if self.temperature not in ("none", "fit"):
            value = decimal_string("temperature", self.temperature)
            if Fraction(value) <= 0:
                raise UsageError(f"Expected argument `temperature` to be above 0, but got {value}.")
        if self.selection == "learn_then_test" and self.ltt_risk is None:
            raise UsageError(
                "Expected argument `ltt_risk` to be given with selection='learn_then_test', but it is not."
            )

    def _check_lambda_grid(self) -> None:
        grid = tuple(decimal_string("lambda_grid", value) for value in self.lambda_grid)
        values = [Fraction(value) for value in grid]
        if any(not 0 <= value <= 1 for value in values):
            raise UsageError(f"Expected argument `lambda_grid` to lie in [0, 1], but got {', '.join(grid)}.")
        if 0 not in values:
            raise UsageError(
                f"Expected argument `lambda_grid` to hold 0, the base pruner alone, but got {', '.join(grid)}."
            )
        if len(set(values)) != len(values):
            raise UsageError(f"Expected argument `lambda_grid` to hold each value once, but got {', '.join(grid)}.")
        object.__setattr__(self, "lambda_grid", grid)

    def replace(self, **changes: Any) -> CPPConfig:
        """A copy with some fields changed; values are checked again."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CPPConfig:
        """The inverse of `to_dict`; an unknown name is an error that lists the nearest known one."""
        if not isinstance(values, dict):
            raise UsageError(f"Expected {CONFIG_NAME} to hold an object of options, but it holds {values!r:.60}.")
        known = {item.name for item in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise UsageError(f"Expected {CONFIG_NAME} to hold known options, but it has {', '.join(unknown)}.")
        return cls(**values)

    def save_pretrained(self, save_directory: str | os.PathLike[str]) -> None:
        """Write `cpp_config.json` into a folder."""
        path = Path(save_directory) / CONFIG_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n", encoding="utf-8")

    @classmethod
    def from_pretrained(cls, directory: str | os.PathLike[str]) -> CPPConfig:
        """Read `cpp_config.json` from a folder."""
        path = Path(directory) / CONFIG_NAME
        if not path.is_file():
            raise UsageError(f"Expected {path.parent} to hold {CONFIG_NAME}, but it does not.")
        try:
            values = parse_json(path.read_bytes())
        except DataError as error:
            raise UsageError(f"Expected {path} to be a recipe, but: {error}") from error
        return cls.from_dict(values)


def kind_of(item: dataclasses.Field[Any]) -> type:
    """Type of an option's value where there is one: an option without a default is text or a whole number."""
    if item.default is not None:
        return type(item.default)
    return int if item.type == "int | None" else str
