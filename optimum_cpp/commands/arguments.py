"""Command-line flags from the one table of fields in `CPPConfig`."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from ..configuration import CPPConfig, kind_of

DATA_FIELDS = ("dataset", "dataset_revision", "split", "text_column", "label_column", "label_names", "on_duplicates")


def add_fields(parser: argparse.ArgumentParser, names: tuple[str, ...] | None = None) -> None:
    """Add a flag for each named field of `CPPConfig` (all of them without names), in groups.

    A flag that is not given leaves no attribute, so that a command knows what its user asked for.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    for item in dataclasses.fields(CPPConfig):
        if names is not None and item.name not in names:
            continue
        group = str(item.metadata["group"])
        if group not in groups:
            groups[group] = parser.add_argument_group(f"{group} options")
        groups[group].add_argument(f"--{item.name}", default=argparse.SUPPRESS, **_details(item))


def config_from(args: argparse.Namespace, base: CPPConfig | None = None) -> CPPConfig:
    """`base` (or the defaults) with the fields that were given on the command line."""
    known = {item.name for item in dataclasses.fields(CPPConfig)}
    given = {name: value for name, value in vars(args).items() if name in known}
    return (base or CPPConfig()).replace(**given)


def _details(item: dataclasses.Field[Any]) -> dict[str, Any]:
    text, default = str(item.metadata["help"]).replace("%", "%%"), item.default
    if isinstance(default, bool):
        return {"action": argparse.BooleanOptionalAction, "help": f"{text} (default: {default})"}
    shown = " ".join(default) if isinstance(default, tuple) else default
    details: dict[str, Any] = {"help": text if shown in (None, "") else f"{text} (default: {shown})"}
    if isinstance(default, tuple):
        details |= {"nargs": "+", "metavar": item.metadata["metavar"]}
    elif kind_of(item) is int:
        details |= {"type": int, "metavar": "N"}
    elif item.metadata.get("choices"):
        choices = list(item.metadata["choices"])
        details |= {"metavar": "{" + ",".join(choices) + "}"}
    else:
        details |= {"metavar": item.name.rsplit("_", 1)[-1].upper()}
    return details
