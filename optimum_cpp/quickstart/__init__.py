"""The embedded default: a corpus, a tokenizer and a model made on the spot, and the real pipeline run on them.

`run_quickstart` is loaded on first use, so that the corpus alone can be had without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run import run_quickstart

__all__ = ["run_quickstart"]


def __getattr__(name: str) -> Any:
    """Import `run_quickstart` on first use (PEP 562)."""
    if name == "run_quickstart":
        from .run import run_quickstart

        return run_quickstart
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
