from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from optimum_cpp.contract import masks
from optimum_cpp.contract.claims import MatrixClaim
from optimum_cpp.contract.masks import mask_claim, verify_masks

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def sparse_matrix(rows: int = 13, columns: int = 11, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0)).to(dtype)
    weight[torch.rand(rows, columns, generator=torch.Generator().manual_seed(1)) < 0.4] = 0
    return weight


def by_hand(weight: torch.Tensor) -> MatrixClaim:
    """One bit for each weight, row by row, the first in the highest place of a byte."""
    bits = "".join("1" if value == 0.0 else "0" for value in weight.double().flatten().tolist())
    padded = bits.ljust(-(-len(bits) // 8) * 8, "0")
    packed = bytes(int(padded[start : start + 8], 2) for start in range(0, len(padded), 8))
    return MatrixClaim(len(bits), bits.count("1"), f"sha256:{hashlib.sha256(packed).hexdigest()}", None)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mask_is_what_a_hand_counts(dtype: torch.dtype) -> None:
    weight = sparse_matrix(dtype=dtype)
    assert mask_claim(weight, None) == by_hand(weight)


@pytest.mark.parametrize("dtype", DTYPES)
def test_only_both_zeros_are_zero(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    values = [0.0, -0.0, info.smallest_normal / 2, -info.smallest_normal, info.max, float("inf"), float("nan")]
    weight = torch.tensor([values], dtype=dtype)
    assert weight[0, 2] != 0
    assert mask_claim(weight, None) == by_hand(weight)
    assert mask_claim(weight, None).zeros == 2


def test_the_most_negative_whole_number_is_no_zero() -> None:
    assert mask_claim(torch.tensor([[-128, 0, 1]], dtype=torch.int8), None).zeros == 1


def test_the_size_of_a_chunk_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mask_claim(sparse_matrix(), None)
    monkeypatch.setattr(masks, "_CHUNK", 8)
    assert mask_claim(sparse_matrix(), None) == whole


def test_a_transposed_view_is_read_in_its_own_order() -> None:
    weight = sparse_matrix()
    assert mask_claim(weight.T, None) == by_hand(weight.T.clone())
    assert mask_claim(weight.T, None) != mask_claim(weight, None)


@pytest.mark.parametrize("stored", ["as it is", "transposed"])
def test_shards_are_read(tmp_path: Path, stored: str) -> None:
    weight = sparse_matrix()
    save_file({"a.weight": (weight if stored == "as it is" else weight.T).contiguous()}, tmp_path / "m.safetensors")
    (tmp_path / "other.json").write_text("{}")
    findings = list(verify_masks(sorted(tmp_path.iterdir()), {"a": mask_claim(weight, None)}))
    assert [(finding.field, finding.holds) for finding in findings] == [("model.matrices.a", True)]


@pytest.mark.parametrize("change", ["revived", "moved", "damping aside"])
def test_a_changed_mask_is_named(tmp_path: Path, change: str) -> None:
    weight = sparse_matrix()
    claim = mask_claim(weight, None)
    zeros = torch.nonzero(weight == 0)
    kept = torch.nonzero(weight)
    if change != "damping aside":
        weight[tuple(zeros[0])] = 1.0
    if change == "moved":
        weight[tuple(kept[0])] = 0.0
    save_file({"a.weight": weight}, tmp_path / "m.safetensors")
    (finding,) = verify_masks([tmp_path / "m.safetensors"], {"a": claim})
    assert finding.holds == (change == "damping aside")
    assert finding.field == "model.matrices.a"
    assert str(claim.mask_digest) in finding.expected


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    save_file({"a.weight": sparse_matrix()}, tmp_path / "m.safetensors")
    whole = (tmp_path / "m.safetensors").read_bytes()
    (tmp_path / "m.safetensors").write_bytes(whole[:-5])
    (finding,) = verify_masks([tmp_path / "m.safetensors"], {})
    assert (finding.field, finding.holds) == ("model.files.m.safetensors", False)
