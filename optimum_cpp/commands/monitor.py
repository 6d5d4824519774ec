"""`optimum-cli cpp monitor`."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import DataError
from .arguments import add_fields, config_from
from .base import CPPSubcommand, add_model_and_output
from .rows import add_input, check_input, open_input, read_rows


class MonitorCommand(CPPSubcommand):
    """Whether recent rows still look like the calibration rows; exit code 1 on an alarm."""

    EXAMPLE = "optimum-cli cpp monitor -m out --input recent.jsonl"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Model, the recent rows in the order of their arrival, and the level."""
        add_model_and_output(parser, output=False)
        add_input(parser)
        parser.add_argument("--level", default="0.01", help="Chance of an alarm without drift (default: 0.01).")
        add_fields(parser, ("text_column", "label_column", "device_map", "batch_tokens", "seed"))

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Verify the contract, then one line for each test."""
        config = config_from(args)
        check_input(args.input)
        from ..monitoring import monitor

        text_column, label_column = config.text_column or "text", config.label_column or "label"
        with open_input(args.input) as source:
            rows = list(read_rows(source, args.input or "stdin", text_column, label_column))
        if rows and config.label_column and all(row.label is None for row in rows):
            raise DataError(f"Expected rows with a label under {config.label_column!r}, but no row has one.")
        texts, labels = [row.text for row in rows], [row.label for row in rows]
        report = monitor(args.model, texts, labels, config=config, level=args.level, progress=True)
        self.exit_code = int(report.alarm)
        return report.to_dict(), report.summary()
