from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad

from optimum_cpp.blocks import BlockCalls, capture_block_calls, find_blocks, matrices_of, run_block
from optimum_cpp.errors import ModelError
from optimum_cpp.saliency import Inseparable, regional_moments
from tiny_models import DECODERS, tiny_model

LENGTHS = (5, 12, 20, 9)
IDS = torch.randint(3, 280, (4, 20), generator=torch.Generator().manual_seed(0))
# Those whose norms and softmaxes compute in the model's dtype; Llama normalises in float32.
TOLERANCES = {"gpt2": 1e-9, "deberta_v2": 1e-9, "llama": 1e-4}


def calls_of(name: str, model: Any, rows: list[list[int]], index: int) -> list[BlockCalls]:
    """Padded batches of these rows, at the input of a block."""
    blocks = find_blocks(model)
    found = []
    for batch in rows:
        width = max(LENGTHS[row] for row in batch)
        ids, real = torch.full((len(batch), width), 2), torch.zeros(len(batch), width, dtype=torch.bool)
        for place, row in enumerate(batch):
            kept = slice(width - LENGTHS[row], width) if name in DECODERS else slice(0, LENGTHS[row])
            ids[place, kept] = IDS[row, : LENGTHS[row]]
            real[place, kept] = True
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": real.long()}
        if name in DECODERS:
            inputs |= {"position_ids": (real.long().cumsum(1) - 1).clamp(min=0), "use_cache": False}
        with torch.no_grad():
            calls = capture_block_calls(model, blocks, inputs, real)
            for block, arguments in zip(blocks[:index], calls.arguments, strict=False):
                calls.hidden = run_block(block, calls.hidden, arguments)
        found.append(calls)
    return found


@functools.cache
def expected_of(name: str, index: int) -> dict[str, Any]:
    """Mean over examples, each alone through the whole model, of the squared gradient of the output's norm."""
    model = tiny_model(name, dtype=torch.float64)
    block = find_blocks(model)[index]
    outputs: list[Any] = []
    block.module.register_forward_hook(lambda module, args, output: outputs.append(output))
    parameters = {f"{m.name}.weight": m.module.weight.detach() for m in block.matrices}

    def norm(chosen: dict[str, Any], row: int) -> Any:
        functional_call(model, chosen, (IDS[row : row + 1, : LENGTHS[row]],))
        output = outputs.pop()
        return (output[0] if isinstance(output, tuple) else output).square().sum().sqrt()

    gradients = [grad(norm)(parameters, row) for row in range(4)]
    found = {m.name: torch.stack([g[f"{m.name}.weight"].detach().square() for g in gradients]) for m in block.matrices}
    means = {name: tensor.mean(0).numpy() for name, tensor in found.items()}
    return {key: array.T if name == "gpt2" else array for key, array in means.items()}


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, Any], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].shape == array.shape and array.max() > 0
        assert np.abs(found[name].numpy() - array).max() <= tolerance * array.max(), name


@pytest.mark.parametrize("rows", [[[0], [1], [2], [3]], [[2, 0], [1, 3]], [[0, 1, 2, 3]]])
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_square_of_each_examples_gradient_of_the_norm(name: str, index: int, rows: list[list[int]]) -> None:
    """Whatever the batches and the padding in them, which enters no norm."""
    model = tiny_model(name, dtype=torch.float64)
    found = regional_moments(find_blocks(model)[index], index, calls_of(name, model, rows, index))
    assert_equal(found, expected_of(name, index), TOLERANCES[name])


def test_only_the_blocks_own_matrices_have_moments() -> None:
    model = tiny_model("llama")
    block = find_blocks(model, target_modules=["q_proj"])[1]
    found = regional_moments(block, 1, calls_of("llama", model, [[0, 1]], 1))
    assert set(found) == {"model.layers.1.self_attn.q_proj"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_kept_in_float32(dtype: torch.dtype) -> None:
    model = tiny_model("gpt2", dtype=dtype)
    found = regional_moments(find_blocks(model)[0], 0, calls_of("gpt2", model, [[0, 1, 2, 3]], 0))
    assert all(moment.dtype == torch.float32 for moment in found.values())
    assert_equal(found, expected_of("gpt2", 0), 1e-4 if dtype == torch.float32 else 0.2)


def test_the_model_and_its_flags_are_left_as_they_were() -> None:
    model = tiny_model("llama")
    parameters = list(model.parameters())
    for parameter in parameters[::3]:
        parameter.requires_grad_(False)
    flags = [parameter.requires_grad for parameter in parameters]
    before = [parameter.detach().clone() for parameter in parameters]
    calls = calls_of("llama", model, [[0, 1]], 0)
    hidden = calls[0].hidden.clone()
    with torch.no_grad():
        regional_moments(find_blocks(model)[0], 0, calls)
    assert [parameter.requires_grad for parameter in parameters] == flags
    assert all(parameter.grad is None for parameter in parameters)
    assert all(torch.equal(a, b) for a, b in zip(parameters, before, strict=True))
    assert torch.equal(calls[0].hidden, hidden) and not calls[0].hidden.requires_grad
    assert not any(module._forward_hooks for module in model.modules())


def test_examples_that_share_inputs_are_refused() -> None:
    model = tiny_model("deberta_v2", dtype=torch.float64)
    with pytest.raises(
        Inseparable,
        match=r"deberta\.encoder\.layer\.0\.attention\.self\.query_proj",
    ):
        regional_moments(find_blocks(model)[0], 0, calls_of("deberta_v2", model, [[0, 1]], 0))
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("index", [0, 1])
def test_one_example_at_a_time_helps_where_they_share_inputs(index: int) -> None:
    model = tiny_model("deberta_v2", dtype=torch.float64)
    calls = calls_of("deberta_v2", model, [[0], [1], [2], [3]], index)
    found = regional_moments(find_blocks(model)[index], index, calls)
    assert_equal(found, expected_of("deberta_v2", index), TOLERANCES["deberta_v2"])


def test_gradients_that_are_not_finite_name_the_matrix() -> None:
    model = tiny_model("llama")
    model.model.layers[0].mlp.down_proj.weight.data[3, 3] = float("nan")
    names = "|".join(matrix.name.replace(".", r"\.") for matrix in matrices_of(find_blocks(model)[:1]))
    with pytest.raises(ModelError, match=rf"finite gradients, but those of ({names}) hold NaN or infinity"):
        regional_moments(find_blocks(model)[0], 0, calls_of("llama", model, [[0, 1]], 0))
