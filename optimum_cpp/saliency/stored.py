"""Moments of gradients that wait on disk, so that those of a few blocks at a time are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch


class StoredMoments(Mapping[str, torch.Tensor]):
    """Moments by matrix name; each is read when it is asked for."""

    def __init__(self) -> None:
        self._files: dict[str, Path] = {}

    def add(self, moments: Mapping[str, torch.Tensor], path: Path) -> None:
        """Write moments to a new file and remember which are in it."""
        from safetensors.torch import save_file

        save_file({name: moment.contiguous().cpu() for name, moment in moments.items()}, path)
        self._files |= dict.fromkeys(moments, path)

    def __getitem__(self, name: str) -> torch.Tensor:
        from safetensors import safe_open

        with safe_open(self._files[name], framework="pt") as stored:
            moment: torch.Tensor = stored.get_tensor(name)
        return moment

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
