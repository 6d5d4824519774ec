"""`optimum-cli cpp prune`."""

from __future__ import annotations

import argparse
from typing import Any

from .arguments import add_fields, config_from
from .base import CPPSubcommand, add_model_and_output


class PruneCommand(CPPSubcommand):
    """Algorithm 1 on a model and a labelled data set."""

    EXAMPLE = (
        "optimum-cli cpp prune -m HuggingFaceTB/SmolLM2-135M-Instruct --dataset fancyzhx/dbpedia_14 "
        "--task dbpedia_14 \\\n      --base_pruner wanda --sparsity 0.5 --alpha 0.1 -o out"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Model, output, and every option of the recipe."""
        add_model_and_output(parser)
        add_fields(parser)

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Draw the roles first, since that is quick and finds bad data, then load the model."""
        config = config_from(args)
        from ..pruner import CPPPruner, get_data_roles
        from ..staging import check_output

        check_output(args.output, overwrite=args.overwrite, keep=(args.model, config.dataset))
        roles = get_data_roles(config=config)
        result = CPPPruner.from_config(args.model, config).prune(
            config=config, roles=roles, save_directory=args.output, overwrite=args.overwrite, sign=args.sign
        )
        shown = f"{result.results.summary()}\n\nwritten to {result.directory}; contract {result.contract.digest}"
        return result.results.to_dict(), shown
