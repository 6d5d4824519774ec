"""Small registries, so that a user adds a base pruner or a score with one decorated function."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from .errors import UsageError


class Registry:
    """Names of one kind of thing, the package's own imported on first use.

    Args:
        kind: what the names stand for, as error messages call it.
        builtin: name -> module (inside this package) whose import registers it.
    """

    def __init__(self, kind: str, builtin: dict[str, str]) -> None:
        self.kind = kind
        self._builtin = builtin
        self._entries: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Any], Any]:
        """Decorator that adds a function or class under a name; a name is taken once."""

        def add(entry: Any) -> Any:
            self._import(name)
            if name in self._entries:
                raise UsageError(f"Expected a new name for a {self.kind}, but {name!r} is taken.")
            self._entries[name] = entry
            return entry

        return add

    def _import(self, name: str) -> None:
        """Import the module that registers a name of the package's own; nothing while that import runs."""
        if name not in self._entries and name in self._builtin:
            importlib.import_module(self._builtin[name], __package__)

    def __getitem__(self, name: str) -> Any:
        self._import(name)
        if name not in self._entries:
            raise UsageError(f"Expected a {self.kind} among {', '.join(self)}, but got {name!r}.")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._builtin

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._builtin, *self._entries)))


BASE_PRUNERS = Registry(
    "base pruner",
    {
        "magnitude": ".pruning.magnitude",
        "wanda": ".pruning.wanda",
        "sparsegpt": ".pruning.sparsegpt",
        "random": ".pruning.magnitude",
        "gradient": ".pruning.gradients",
        "snip": ".pruning.gradients",
        "wanda++": ".pruning.wanda",
    },
)
SCORES = Registry(
    "score",
    {
        "nll": ".scoring.transforms",
        "label_nll": ".scoring.transforms",
        "prior_nll": ".scoring.transforms",
    },
)
