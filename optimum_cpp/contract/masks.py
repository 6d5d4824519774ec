"""Which weights of a matrix are zero: their digest, in memory and in the shards of a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .claims import Claims, MatrixClaim
from .findings import Finding

if TYPE_CHECKING:
    import torch


def mask_claim(weight: torch.Tensor, damping: float | None) -> MatrixClaim:
    """What a contract says of a matrix (out, in): its size, its zeros, and the digest of where they are."""
    zero = (weight == 0).cpu().numpy()
    return MatrixClaim(zero.size, int(zero.sum()), _digest(zero), damping)


def verify_masks(shards: Iterable[Path], claims: Claims) -> Iterator[Finding]:
    """Read each claimed matrix from its shard, one at a time.

    A checkpoint may hold a matrix under another name than the model; those are left to the digest of
    the weights in memory, which is checked when the model is loaded.
    """
    from safetensors import SafetensorError, safe_open

    for path in shards:
        if path.suffix != ".safetensors":
            continue
        try:
            with safe_open(path, framework="pt") as shard:
                names = set(shard.keys())
                for name, claim in claims.model.matrices.items():
                    if f"{name}.weight" in names:
                        yield _verify_mask(name, claim, shard.get_tensor(f"{name}.weight"))
        except SafetensorError as error:
            yield Finding(f"model.files.{path.name}", False, "a safetensors file", str(error))


def _verify_mask(name: str, claim: MatrixClaim, weight: torch.Tensor) -> Finding:
    found = mask_claim(weight, claim.damping)
    # GPT-2 stores its matrices as (in, out).
    holds = claim in (found, mask_claim(weight.T, claim.damping))
    return Finding(
        f"model.matrices.{name}",
        holds,
        f"{claim.zeros} zeros of {claim.size}, mask {claim.mask_digest}",
        f"{found.zeros} zeros of {found.size}, mask {found.mask_digest}",
    )


def _digest(zero: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> str:
    return f"sha256:{hashlib.sha256(np.packbits(zero).tobytes()).hexdigest()}"
