"""`optimum-cli cpp calibrate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..configuration import CPPConfig
from ..errors import UsageError
from ..filenames import CONTRACT_NAME
from .arguments import DATA_FIELDS, add_fields, config_from
from .base import CPPSubcommand, add_model_and_output

_FIELDS = (
    *DATA_FIELDS,
    "val_rows",
    "conformal_rows",
    "test_rows",
    "task",
    "prompt",
    "verbalizers",
    "max_text_tokens",
    "alpha",
    "score",
    "temperature",
    "length_normalize",
    "allow_empty",
    "gguf_file",
    "dtype",
    "device_map",
    "batch_tokens",
    "seed",
)


_DECIDED_BY_A_CONTRACT = (
    "task",
    "prompt",
    "verbalizers",
    "max_text_tokens",
    "score",
    "temperature",
    "length_normalize",
    "allow_empty",
    "gguf_file",
    "dtype",
    "label_names",
    "val_rows",
)


class CalibrateCommand(CPPSubcommand):
    """A fresh quantile on new data, the model untouched."""

    EXAMPLE = "optimum-cli cpp calibrate -m out --dataset new_rows.jsonl --alpha 0.05 -o out2"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Model, output, the new rows, and the options that a calibration has."""
        add_model_and_output(parser)
        add_fields(parser, _FIELDS)

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Draw new conformal and test rows, take the quantile, write a new contract."""
        from ..recalibration import recalibrate

        fixed = [name for name in _DECIDED_BY_A_CONTRACT if hasattr(args, name)]
        if fixed and (Path(args.model) / CONTRACT_NAME).is_file():
            raise UsageError(
                f"Expected `{fixed[0]}` to be left to the contract of {args.model!r}, which keeps prompt, labels and "
                "score; leave the flag out."
            )
        config = config_from(args, CPPConfig(sparsity="0", lambda_grid=("0",)))
        result = recalibrate(
            args.model, config=config, save_directory=args.output, overwrite=args.overwrite, sign=args.sign
        )
        shown = f"{result.results.summary()}\n\nwritten to {result.directory}; contract {result.contract.digest}"
        return result.results.to_dict(), shown
