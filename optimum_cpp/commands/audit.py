"""`optimum-cli cpp audit`."""

from __future__ import annotations

import argparse
from typing import Any

from .arguments import DATA_FIELDS, add_fields, config_from
from .base import CPPSubcommand, add_model_and_output


class AuditCommand(CPPSubcommand):
    """Coverage, set size and accuracy in each class and subgroup."""

    EXAMPLE = "optimum-cli cpp audit -m out --dataset new_rows.csv --by region"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Model, where other rows are, and the columns to group them by."""
        add_model_and_output(parser, output=False)
        parser.add_argument("--by", nargs="+", default=[], metavar="COLUMN", help="Columns whose values are subgroups.")
        add_fields(parser, (*DATA_FIELDS, "device_map", "batch_tokens"))

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Verify the contract, then count."""
        from ..auditing import audit
        from ..modeling import CPPModel

        config = config_from(args)
        model = CPPModel.from_pretrained(args.model, device_map=config.device_map, batch_tokens=config.batch_tokens)
        found = audit(model, dataset=config.dataset, by=args.by, config=config)
        return found.to_dict(), found.summary()
