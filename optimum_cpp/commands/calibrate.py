"""`optimum-cli cpp calibrate`."""

from __future__ import annotations

import argparse
from typing import Any

from ..configuration import CPPConfig
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

        config = config_from(args, CPPConfig(sparsity="0", lambda_grid=("0",)))
        result = recalibrate(args.model, config=config, save_directory=args.output, overwrite=args.overwrite)
        shown = f"{result.results.summary()}\n\nwritten to {result.directory}; contract {result.contract.digest}"
        return result.results.to_dict(), shown
