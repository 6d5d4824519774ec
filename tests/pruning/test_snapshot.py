from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from optimum_cpp.blocks import find_blocks, matrices_of
from optimum_cpp.pruning.snapshot import restore_weights, save_weights
from tiny_models import tiny_model


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_come_back_bit_for_bit(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny_model(name, dtype=dtype)
    matrices = matrices_of(find_blocks(model))
    matrices[0].weight.flatten()[:2] = torch.tensor([-0.0, 1e-30], dtype=dtype)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    path = tmp_path / "weights.safetensors"
    save_weights(matrices, path)
    for matrix in matrices:
        matrix.weight.mul_(0.5).add_(1)
    restore_weights(matrices, path)
    for key, value in model.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value.view(torch.uint8), before[key].view(torch.uint8)), key


def test_only_the_matrices_are_touched(tmp_path: Path) -> None:
    model = tiny_model("llama")
    matrices = matrices_of(find_blocks(model))
    save_weights(matrices, tmp_path / "weights.safetensors")
    model.lm_head.weight.data.fill_(7)
    restore_weights(matrices, tmp_path / "weights.safetensors")
    assert (model.lm_head.weight == 7).all()


def test_a_matrix_that_was_not_saved(tmp_path: Path) -> None:
    matrices = matrices_of(find_blocks(tiny_model("llama")))
    save_weights(matrices[1:], tmp_path / "weights.safetensors")
    with pytest.raises(SafetensorError, match="q_proj"):
        restore_weights(matrices, tmp_path / "weights.safetensors")
