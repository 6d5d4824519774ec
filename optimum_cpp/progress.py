"""Progress bars on stderr, for stages that a person waits for."""

from __future__ import annotations

from typing import Any

from tqdm.auto import tqdm


def progress_bar(total: int, description: str | None, unit: str = "row") -> Any:
    """A tqdm bar, silent without a description; use it as a context manager."""
    return tqdm(total=total, desc=description, unit=unit, disable=description is None, leave=False, delay=1)
