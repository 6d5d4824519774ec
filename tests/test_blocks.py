from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import nn

from optimum_cpp.blocks import capture_block_calls, describe_blocks, find_blocks, matrices_of, run_block
from optimum_cpp.errors import ModelError, UsageError
from tiny_models import DECODERS, ENCODERS, SLIDING, tiny_model

GATED = {f"self_attn.{x}_proj" for x in "qkvo"} | {f"mlp.{x}_proj" for x in ("gate", "up", "down")}
ATTENTION = {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"}
BERT = ATTENTION | {"intermediate.dense", "output.dense"}
# From the architectures' papers and code: the block list, and the dense attention and MLP matrices of a block.
EXPECTED = {
    **dict.fromkeys(
        ("llama", "qwen2", "qwen2_sliding", "qwen3", "mistral", "gemma", "gemma2", "gemma3"), ("model.layers", GATED)
    ),
    "phi": (
        "model.layers",
        {*(f"self_attn.{x}" for x in ("q_proj", "k_proj", "v_proj", "dense")), "mlp.fc1", "mlp.fc2"},
    ),
    **dict.fromkeys(
        ("phi3", "phi3_sliding"),
        ("model.layers", {"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"}),
    ),
    "gpt_neox": (
        "gpt_neox.layers",
        {"attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
    ),
    "gpt2": ("transformer.h", {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}),
    "opt": (
        "model.decoder.layers",
        {*(f"self_attn.{x}_proj" for x in ("q", "k", "v", "out")), "fc1", "fc2"},
    ),
    "falcon": (
        "transformer.h",
        {"self_attention.query_key_value", "self_attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
    ),
    "bert": ("bert.encoder.layer", BERT),
    "roberta": ("roberta.encoder.layer", BERT),
    "distilbert": (
        "distilbert.transformer.layer",
        {*(f"attention.{x}_lin" for x in ("q", "k", "v", "out")), "ffn.lin1", "ffn.lin2"},
    ),
    "deberta_v2": (
        "deberta.encoder.layer",
        {*(f"attention.self.{x}_proj" for x in ("query", "key", "value")), "attention.output.dense"}
        | {"intermediate.dense", "output.dense"},
    ),
    "modernbert": ("model.layers", {"attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo"}),
}
ARCHITECTURES = (*DECODERS, *ENCODERS)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_blocks_and_matrices_of_every_architecture(name: str) -> None:
    blocks = find_blocks(tiny_model(name))
    prefix, kinds = EXPECTED[name]
    assert [block.name for block in blocks] == [f"{prefix}.0", f"{prefix}.1"]
    for block in blocks:
        assert {matrix.name for matrix in block.matrices} == {f"{block.name}.{kind}" for kind in kinds}
        assert len(block.matrices) == len(kinds)
    assert [m.name for m in matrices_of(blocks)] == [m.name for block in blocks for m in block.matrices]


def test_projections_of_positions_stay_dense() -> None:
    model = tiny_model("deberta_v2", share_att_key=False)
    assert any("pos_key_proj" in name for name, _ in model.named_modules())
    found = {matrix.name.rsplit(".", 1)[1] for matrix in matrices_of(find_blocks(model))}
    assert found == {"query_proj", "key_proj", "value_proj", "dense"}


def test_the_weight_is_a_view_of_the_model() -> None:
    model = tiny_model("llama")
    matrix = next(m for m in matrices_of(find_blocks(model)) if m.name.endswith("1.mlp.up_proj"))
    assert matrix.weight.shape == (48, 32)
    matrix.weight[3, 5] = 11
    assert model.model.layers[1].mlp.up_proj.weight[3, 5] == 11


def test_conv1d_is_seen_with_outputs_first() -> None:
    model = tiny_model("gpt2")
    matrix = next(m for m in matrices_of(find_blocks(model)) if m.name.endswith("0.mlp.c_fc"))
    assert matrix.weight.shape == (48, 32)
    matrix.weight[40, 5] = 11
    assert model.transformer.h[0].mlp.c_fc.weight[5, 40] == 11


def test_description() -> None:
    blocks = find_blocks(tiny_model("gpt2"))
    size = 2 * (32 * 96 + 32 * 32 + 2 * 32 * 48)
    assert (
        describe_blocks(blocks)
        == f"2 blocks, {size:,} prunable weights in attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj"
    )


@pytest.mark.parametrize(
    "target_modules, ignore, kinds",
    [
        (("q_proj", "mlp.up_proj"), (), {"self_attn.q_proj", "mlp.up_proj"}),
        ((), ("q_proj", "down_proj"), GATED - {"self_attn.q_proj", "mlp.down_proj"}),
        (("q_proj", "k_proj"), ("k_proj",), {"self_attn.q_proj"}),
    ],
)
def test_names_given_by_their_ending(target_modules: Any, ignore: Any, kinds: set[str]) -> None:
    for block in find_blocks(tiny_model("llama"), target_modules=target_modules, ignore=ignore):
        assert {matrix.name for matrix in block.matrices} == {f"{block.name}.{kind}" for kind in kinds}


def test_one_matrix_given_by_its_full_name() -> None:
    blocks = find_blocks(tiny_model("llama"), target_modules=["model.layers.1.mlp.up_proj"])
    assert [len(block.matrices) for block in blocks] == [0, 1]


@pytest.mark.parametrize("option", ["target_modules", "ignore"])
@pytest.mark.parametrize("name", ["qproj", "_proj", "layers.0", "lm_head"])
def test_a_name_that_no_matrix_has(option: str, name: str) -> None:
    with pytest.raises(UsageError, match=rf"`{option}` to name matrices .* '{name}'; there are mlp\.down_proj, mlp\.g"):
        find_blocks(tiny_model("llama"), **{option: [name]})


def test_nothing_left_to_prune() -> None:
    with pytest.raises(ModelError, match=r"prunable matrices in model\.layers, but none is left"):
        find_blocks(tiny_model("llama"), target_modules=["q_proj"], ignore=["q_proj"])


def test_fused_experts_are_refused_with_their_names() -> None:
    model = tiny_model("mixtral")
    with pytest.raises(
        ModelError, match=r"fused experts\?.*model\.layers\.0\.mlp\.experts\.gate_up_proj \(4, 96, 32\)"
    ):
        find_blocks(model)
    blocks = find_blocks(model, target_modules=["q_proj", "o_proj"])
    assert len(matrices_of(blocks)) == 4


def test_an_encoder_decoder_is_refused() -> None:
    config = transformers.T5Config(vocab_size=280, d_model=32, d_ff=48, num_layers=1, num_heads=4, d_kv=8)
    with pytest.raises(ModelError, match="t5 is an encoder-decoder"):
        find_blocks(transformers.T5ForConditionalGeneration(config))


class Plain(nn.Module):
    def __init__(self, **children: nn.Module) -> None:
        super().__init__()
        self.config = transformers.PretrainedConfig()
        for name, child in children.items():
            self.add_module(name, child)


def test_a_model_without_a_list_of_blocks() -> None:
    with pytest.raises(ModelError, match="list of transformer blocks, but found only first, second"):
        find_blocks(Plain(first=nn.Linear(2, 2), second=nn.Linear(2, 2)))


def test_blocks_without_dense_layers() -> None:
    with pytest.raises(ModelError, match="dense layers in the blocks 'layers', but they hold only Conv1d, ModuleList"):
        find_blocks(Plain(layers=nn.ModuleList([nn.Conv1d(2, 2, 1)])))


def test_the_list_with_most_weights_holds_the_blocks() -> None:
    heads = nn.ModuleList([nn.Linear(4, 2) for _ in range(5)])
    layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ModuleList([nn.Linear(8, 8)])) for _ in range(2)])
    blocks = find_blocks(Plain(heads=heads, layers=layers))
    assert [[m.name for m in block.matrices] for block in blocks] == [
        ["layers.0.0", "layers.0.1.0"],
        ["layers.1.0", "layers.1.1.0"],
    ]


def padded_inputs(name: str, side: str) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Three rows of 5, 12 and 20 random tokens, padded on one side."""
    ids = torch.randint(3, 280, (3, 20), generator=torch.Generator().manual_seed(0))
    places = torch.arange(20).expand(3, 20)
    lengths = torch.tensor([[5], [12], [20]])
    real = places >= 20 - lengths if side == "left" else places < lengths
    inputs = {"input_ids": ids.masked_fill(~real, 2), "attention_mask": real.long()}
    if name in DECODERS:
        inputs |= {"position_ids": (real.long().cumsum(1) - 1).clamp(min=0)}
    return inputs, real


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_blocks_run_one_after_another_give_the_models_hidden_states(name: str, attention: str) -> None:
    """For Gemma and others with layers of two types each block must get its own mask and positions."""
    model = tiny_model(name, attention=attention)
    inputs, real = padded_inputs(name, "left" if name in DECODERS else "right")
    blocks = find_blocks(model)
    outputs: list[torch.Tensor] = []
    handles = [
        block.module.register_forward_hook(
            lambda module, args, output: outputs.append(output[0] if isinstance(output, tuple) else output)
        )
        for block in blocks
    ]
    with torch.no_grad():
        model(**inputs, **cacheless(name))
        for handle in handles:
            handle.remove()
        calls = capture_block_calls(model, blocks, inputs | cacheless(name), real)
        hidden = calls.hidden
        for index, (block, expected) in enumerate(zip(blocks, outputs, strict=True)):
            hidden = run_block(block, hidden, calls.arguments[index])
            assert hidden.shape == (3, 20, 32)
            torch.testing.assert_close(hidden[real], expected[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in SLIDING if name not in ("mistral", "phi3_sliding")] + ["modernbert"])
def test_layers_of_two_types_get_arguments_of_their_own(name: str) -> None:
    """Swapping the two blocks' arguments changes the result, so the test above can fail."""
    model = tiny_model(
        name, **({"layer_types": ["sliding_attention", "full_attention"]} if name == "modernbert" else {})
    )
    inputs, real = padded_inputs(name, "left" if name in DECODERS else "right")
    blocks = find_blocks(model)
    with torch.no_grad():
        calls = capture_block_calls(model, blocks, inputs | cacheless(name), real)
        right, wrong = (run_block(blocks[0], calls.hidden, calls.arguments[index]) for index in (0, 1))
    assert (right - wrong)[real].abs().max() > 0.01


def cacheless(name: str) -> dict[str, Any]:
    return {"use_cache": False} if name in DECODERS else {}


def test_capturing_leaves_the_model_as_it_was() -> None:
    model = tiny_model("llama")
    inputs, real = padded_inputs("llama", "left")
    blocks = find_blocks(model)
    original = type(blocks[1].module).forward
    calls = []

    def own(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(blocks[1].module, *args, **kwargs)

    blocks[1].module.forward = own
    with torch.no_grad():
        before = model(**inputs).logits
        capture_block_calls(model, blocks, inputs, real)
        with pytest.raises(IndexError):
            capture_block_calls(model, blocks, inputs | {"input_ids": torch.full((3, 20), 999)}, real)
        assert "forward" not in vars(blocks[0].module) and blocks[1].module.forward is own
        assert torch.equal(model(**inputs).logits, before)
    assert len(calls) == 2


def test_shared_layers_are_refused() -> None:
    model = tiny_model("albert")
    inputs, real = padded_inputs("albert", "right")
    with torch.no_grad(), pytest.raises(ModelError, match="1 blocks to run once in a pass, but 2 calls were made"):
        capture_block_calls(model, find_blocks(model), inputs, real)


def test_a_model_that_computes_between_blocks_is_refused() -> None:
    """DeBERTa-v2's larger checkpoints have a convolution behind the first block."""
    model = tiny_model("deberta_v2", conv_kernel_size=3, conv_act="gelu")
    inputs, real = padded_inputs("deberta_v2", "right")
    with (
        torch.no_grad(),
        pytest.raises(ModelError, match=r"deberta\.encoder\.layer\.1 to read the output of the block"),
    ):
        capture_block_calls(model, find_blocks(model), inputs, real)
