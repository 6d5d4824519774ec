"""`optimum-cli cpp evaluate`."""

from __future__ import annotations

import argparse
from typing import Any

from ..configuration import CPPConfig
from ..filenames import CONFIG_NAME
from .arguments import DATA_FIELDS, add_fields, config_from
from .base import CPPSubcommand, add_model_and_output


class EvaluateCommand(CPPSubcommand):
    """Evaluate on the manifest's test role, or on rows that the model has not seen."""

    EXAMPLE = "optimum-cli cpp evaluate -m out"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Model, and where other rows are."""
        add_model_and_output(parser, output=False)
        add_fields(parser, (*DATA_FIELDS, "device_map", "batch_tokens"))

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Verify the contract, then evaluate."""
        from ..evaluation import evaluate
        from ..modeling import CPPModel
        from ..results import model_table, row_values

        dataset = getattr(args, "dataset", None)
        given = config_from(args)
        model = CPPModel.from_pretrained(args.model, device_map=given.device_map, batch_tokens=given.batch_tokens)
        config = given
        if dataset is None and (model.directory / CONFIG_NAME).is_file():
            config = config_from(args, CPPConfig.from_pretrained(model.directory))
        row = evaluate(model, dataset=dataset, config=config)
        return row_values(row), model_table([row])
