import hashlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from optimum_cpp.errors import MissingDependency, ModelError
from optimum_cpp.loading import classifier_kind, load_model, weights_digest
from tiny_models import byte_tokenizer, tiny_model


def test_a_folder_opens_in_its_own_dtype_or_another(dense_folder: Path, tmp_path: Path) -> None:
    loaded = load_model(dense_folder)
    assert (loaded.kind, loaded.model.dtype, loaded.model.training) == ("decoder", torch.float32, False)
    assert load_model(dense_folder, dtype="bfloat16").model.dtype == torch.bfloat16
    tiny_model("bert").save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    assert load_model(tmp_path).kind == "encoder"


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        (SimpleNamespace(architectures=["BertModel"], model_type="bert"), "classification head"),
        (SimpleNamespace(architectures=["T5ForConditionalGeneration"], is_encoder_decoder=True, model_type="t5"), "t5"),
        (
            SimpleNamespace(architectures=["LlamaForCausalLM"], quantization_config={"quant_method": "gptq"}),
            "gptq",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused(config: object, hint: str) -> None:
    with pytest.raises(ModelError, match=hint):
        classifier_kind(config)


def test_kinds() -> None:
    assert classifier_kind(SimpleNamespace(architectures=["GPT2LMHeadModel"])) == "decoder"
    assert classifier_kind(SimpleNamespace(architectures=["LlamaForSequenceClassification"])) == "encoder"
    assert classifier_kind(SimpleNamespace(architectures=None)) == "decoder"


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


def test_the_weights_digest_covers_names_dtypes_shapes_and_bytes() -> None:
    model = torch.nn.Linear(2, 3)
    expected = hashlib.sha256()
    for name in ("bias", "weight"):
        value = getattr(model, name).detach()
        expected.update(f"{name}:torch.float32:{tuple(value.shape)}:".encode() + value.numpy().tobytes())
    assert weights_digest(model) == f"sha256:{expected.hexdigest()}"
    before = weights_digest(model)
    model.weight.data[0, 0] += 1e-6
    assert weights_digest(model) != before
    assert weights_digest(tiny_model("llama", dtype=torch.bfloat16)) == weights_digest(
        tiny_model("llama", dtype=torch.bfloat16)
    )


def test_weights_that_the_checkpoint_lacks_are_refused_not_made_up(dense_folder: Path, tmp_path: Path) -> None:
    model = tiny_model("llama")
    kept = {name: value for name, value in model.state_dict().items() if "layers.1.mlp.up_proj" not in name}
    model.save_pretrained(tmp_path, state_dict=kept)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj"):
        load_model(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_named(dense_folder: Path, tmp_path: Path, value: float) -> None:
    folder = Path(shutil.copytree(dense_folder, tmp_path / "damaged"))
    weights = load_file(folder / "model.safetensors")
    name = sorted(weights)[3]
    weights[name].view(-1)[0] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=f"{name} holds NaN or infinity"):
        load_model(folder)


def test_damaged_files_are_one_sentence(dense_folder: Path, tmp_path: Path) -> None:
    damage = {
        "model.safetensors": b"xx",
        "config.json": json.dumps(
            json.loads((dense_folder / "config.json").read_text()) | {"intermediate_size": 7}
        ).encode(),
        "tokenizer.json": b"{}",
    }
    for name, content in damage.items():
        folder = Path(shutil.copytree(dense_folder, tmp_path / name))
        (folder / name).write_bytes(content)
        with pytest.raises(ModelError) as caught:
            load_model(folder)
        assert "\n" not in str(caught.value)


def test_gguf_without_its_package_names_the_extra(dense_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingDependency, match=r"optimum-cpp\[gguf\]"):
        load_model(dense_folder, gguf_file="x.gguf")


def test_a_gguf_checkpoint_is_dequantised_and_can_be_saved(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="needs the gguf extra")
    model, path = tiny_model("llama"), tmp_path / "tiny.gguf"
    _write_gguf(gguf, model, path)
    loaded = load_model(tmp_path, gguf_file="tiny.gguf", dtype="float32")
    for name, value in loaded.model.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name], msg=name)
    loaded.model.save_pretrained(tmp_path / "saved")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert not hasattr(plain.config, "quantization_config")
    assert weights_digest(plain) == weights_digest(loaded.model)


def _write_gguf(gguf, model, path: Path) -> None:
    """The tiny Llama as an unquantised GGUF file with a byte-level tokenizer."""
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    backend = byte_tokenizer().backend_tokenizer
    tokens = [backend.id_to_token(i) or f"<unused{i}>" for i in range(config.vocab_size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(["Ġ a", "Ġ f", "Ġf i", "t h"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if ".q_" in name else config.num_key_value_heads
            # GGUF keeps rotary halves interleaved.
            value = value.reshape(heads, 2, -1, value.shape[1]).swapaxes(1, 2).reshape(value.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("device_map", ["meta", "cuda"])
def test_weights_that_would_not_be_in_memory(dense_folder: Path, device_map: str) -> None:
    if device_map == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has the device")
    with pytest.raises(ModelError, match=r"^Expected ") as caught:
        load_model(dense_folder, device_map=device_map)
    assert "\n" not in str(caught.value)
    assert device_map != "meta" or "`device_map`" in str(caught.value)
