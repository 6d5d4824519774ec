"""`optimum-cli cpp quickstart`."""

from __future__ import annotations

import argparse
from typing import Any

from .base import CPPSubcommand


class QuickstartCommand(CPPSubcommand):
    """The whole pipeline on a small model that is made and trained here."""

    EXAMPLE = "optimum-cli cpp quickstart"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Output folder, speed and seed."""
        parser.add_argument("-o", "--output", default="out", help="Output folder (default: out).")
        parser.add_argument("--overwrite", action="store_true", help="Replace an output folder that is not empty.")
        parser.add_argument("--fast", action="store_true", help="A smaller model and fewer rows: under a minute.")
        parser.add_argument(
            "--seed", type=int, default=0, metavar="N", help="Seed of every random choice (default: 0)."
        )

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Make the assets, prune, and say what to try next."""
        from ..quickstart import run_quickstart

        result, text = run_quickstart(args.output, fast=args.fast, seed=args.seed, overwrite=args.overwrite)
        return result.results.to_dict(), text
