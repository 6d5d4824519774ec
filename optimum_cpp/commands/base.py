"""What every `optimum-cli cpp` command shares: messages, `--json`, exit codes."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import warnings
from abc import abstractmethod
from typing import Any

from optimum.commands.base import BaseOptimumCLICommand

from ..errors import CPPError


class CPPSubcommand(BaseOptimumCLICommand):  # type: ignore[misc]
    """A command that prints a summary, or one JSON object with `--json`, and fails with one sentence."""

    EXAMPLE = ""
    # What the process ends with where the work itself went through.
    exit_code = 0

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own flags."""

    def parse_args(self, parser: argparse.ArgumentParser) -> None:
        """All flags, and the example that `--help` ends with; optimum-cli calls this."""
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = f"example:\n  {self.EXAMPLE}"
        self.add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="Print one JSON object on stdout, for machines.")

    @abstractmethod
    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Do the work; returns what `--json` prints and what a person reads (nothing where empty)."""

    def run(self) -> None:
        """Run the command and exit: 0 done, 1 contract or data problem, 2 usage."""
        _set_up_messages()
        # Ending by an exception lets open output folders clean up after themselves.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            values, text = self.execute(self.args)
        except CPPError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)
        except BrokenPipeError:
            # The reader has seen enough; point stdout elsewhere, or closing it would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        shown = json.dumps(values) if self.args.json and values else text
        if shown:
            print(shown)
        if self.exit_code:
            sys.exit(self.exit_code)


def add_model_and_output(parser: argparse.ArgumentParser, *, output: bool = True) -> None:
    """`-m/--model`, and `-o/--output` with `--overwrite` and `--sign`."""
    parser.add_argument("-m", "--model", required=True, help="Hub id or folder of the model.")
    if output:
        parser.add_argument("-o", "--output", required=True, help="Output folder, new or empty.")
        parser.add_argument("--overwrite", action="store_true", help="Replace an output folder that is not empty.")
        parser.add_argument("--sign", metavar="KEY", help="Sign the contract with this PEM private key.")


def _set_up_messages() -> None:
    """Our own messages and warnings go to stderr as plain lines; libraries stay quiet."""
    import transformers

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("optimum_cpp")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    warnings.showwarning = lambda message, *rest, **named: logger.warning("warning: %s", message)
