"""Which weights of a matrix are zero: their digest, in memory and in the shards of a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .claims import MatrixClaim
from .findings import Finding

if TYPE_CHECKING:
    import torch

# Elements looked at together: their mask stays in the cache. A multiple of 8, so that bits fill bytes.
_CHUNK = 2**20


def mask_claim(weight: torch.Tensor, damping: float | None) -> MatrixClaim:
    """What a contract says of a matrix (out, in): its size, its zeros, and the digest of where they are."""
    sha256, zeros = hashlib.sha256(), 0
    flat = weight.detach().cpu().contiguous().reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        zero = _is_zero(flat[start : start + _CHUNK])
        zeros += int(np.count_nonzero(zero))
        sha256.update(np.packbits(zero).data)
    return MatrixClaim(flat.numel(), zeros, f"sha256:{sha256.hexdigest()}", damping)


def _is_zero(chunk: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Where a flat chunk is zero, of either sign."""
    import torch

    # Comparing bit patterns is five times as fast as torch's comparison of half-precision numbers.
    patterns = {torch.float16: np.uint16, torch.bfloat16: np.uint16, torch.float32: np.uint32}
    if chunk.dtype not in patterns:
        return np.asarray((chunk == 0).numpy())
    bits = chunk.view(torch.uint8).numpy().view(patterns[chunk.dtype])
    return np.asarray((bits & (np.iinfo(bits.dtype).max >> 1)) == 0)


def verify_masks(shards: Iterable[Path], matrices: Mapping[str, MatrixClaim]) -> Iterator[Finding]:
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
            for name, claim in matrices.items():
                if f"{name}.weight" in names:
                    # Opened anew for each matrix: a mapping keeps every page that it has shown in memory.
                    with safe_open(path, framework="pt") as shard:
                        yield _verify_mask(name, claim, shard.get_tensor(f"{name}.weight"))
        except SafetensorError as error:
            yield Finding(f"model.files.{path.name}", False, "a safetensors file", str(error))


def _verify_mask(name: str, claim: MatrixClaim, weight: torch.Tensor) -> Finding:
    found = mask_claim(weight, claim.damping)
    holds = found == claim
    if not holds and (found.size, found.zeros) == (claim.size, claim.zeros):
        # GPT-2 stores its matrices as (in, out).
        holds = mask_claim(weight.T, claim.damping) == claim
    return Finding(
        f"model.matrices.{name}",
        holds,
        f"{claim.zeros} zeros of {claim.size}, mask {claim.mask_digest}",
        f"{found.zeros} zeros of {found.size}, mask {found.mask_digest}",
    )
