"""`optimum-cli cpp verify`."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from .arguments import add_fields, config_from
from .base import CPPSubcommand, add_model_and_output

if TYPE_CHECKING:
    from ..contract import Finding


class VerifyCommand(CPPSubcommand):
    """What moved since the contract was written; exit code 1 if anything did."""

    EXAMPLE = (
        "optimum-cli cpp verify -m out\n  optimum-cli cpp verify -m out --dataset fancyzhx/dbpedia_14 --rescore 64"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Model, what to expect, and where the rows are."""
        add_model_and_output(parser, output=False)
        parser.add_argument("--expected_digest", help="Digest of the contract as its author published it.")
        parser.add_argument(
            "--rescore", type=int, default=0, metavar="N", help="Calibration scores to compute again with the model."
        )
        parser.add_argument("--signature", help="Detached signature of the contract (default: the folder's own).")
        parser.add_argument("--public_key", help="PEM file of the key that must have signed it.")
        parser.add_argument("--identity", help="Identity that must have signed it through Sigstore.")
        parser.add_argument("--identity_provider", help="Who vouches for that identity.")
        add_fields(parser, ("dataset", "dataset_revision", "model_revision"))

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """One line for each check."""
        from ..verification import verify

        config = config_from(args)
        found = verify(
            args.model,
            revision=config.model_revision,
            dataset=config.dataset,
            dataset_revision=config.dataset_revision,
            rescore=args.rescore,
            expected_digest=args.expected_digest,
            signature=args.signature,
            public_key=args.public_key,
            identity=args.identity,
            identity_provider=args.identity_provider,
            progress=True,
        )
        moved = sum(not finding.holds for finding in found.findings)
        self.exit_code = int(moved > 0)
        values = {
            "digest": found.digest,
            "holds": found.holds,
            "findings": [dataclasses.asdict(finding) for finding in found.findings],
        }
        lines = [_line(finding) for finding in found.findings]
        return values, "\n".join([*lines, "", f"{len(lines)} checks, {moved} moved; contract {found.digest}"])


def _line(finding: Finding) -> str:
    if finding.holds:
        return f"holds  {finding.field}"
    return f"MOVED  {finding.field}: expected {finding.expected[:200]}, found {finding.found[:200]}"
