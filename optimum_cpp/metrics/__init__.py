"""The metric of `evaluate`: where its script lies."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError


def metric_path(name: str = "conformal") -> str:
    """The folder to give to `evaluate.load`, which opens it without a network.

    Raises:
        UsageError: there is no metric of this name.
    """
    folder = Path(__file__).parent / name
    if not (folder / f"{name}.py").is_file():
        raise UsageError(f"Expected argument `name` to be conformal, but got {name!r}.")
    return str(folder)
