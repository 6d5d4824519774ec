"""`optimum-cli cpp push`."""

from __future__ import annotations

import argparse
from typing import Any

from .base import CPPSubcommand, add_model_and_output


class PushCommand(CPPSubcommand):
    """An output folder to the Hub, in one commit."""

    EXAMPLE = "optimum-cli cpp push -m out --repo_id me/name --private"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Folder, repository, and who may see it."""
        add_model_and_output(parser, output=False)
        parser.add_argument("--repo_id", required=True, help="Repository, name or user/name; created if missing.")
        parser.add_argument("--private", action="store_true", default=None, help="Make a new repository private.")
        parser.add_argument("--gated", choices=("auto", "manual"), help="Ask for approval before others download.")
        parser.add_argument("--create_pr", action="store_true", help="Open a pull request in place of a commit.")
        parser.add_argument("--revision", help="Branch (default: main).")

    def execute(self, args: argparse.Namespace) -> tuple[dict[str, Any], str]:
        """Verify, then upload."""
        from ..hub import push_to_hub

        address = push_to_hub(
            args.model,
            args.repo_id,
            private=args.private,
            gated=args.gated,
            create_pr=args.create_pr,
            revision=args.revision,
        )
        return {"url": address}, f"uploaded: {address}"
