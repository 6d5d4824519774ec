"""`optimum-cli cpp evaluate`."""

from __future__ import annotations

import argparse
from typing import Any

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

        config = config_from(args)
        model = CPPModel.from_pretrained(args.model, device_map=config.device_map, batch_tokens=config.batch_tokens)
        row = evaluate(model, dataset=config.dataset, config=config)
        return row_values(row), model_table([row])
