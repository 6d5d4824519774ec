"""A served model answers while its contract holds, and names what moved when it does not."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from optimum_cpp import CPPModelForCausalLM, CPPModelForSequenceClassification
from optimum_cpp.errors import ContractViolation, DataError, ModelError
from optimum_cpp.frozen import FrozenClassifier
from optimum_cpp.modeling import CPPModel, CPPResult
from tiny_models import LABELS

TEXTS = ["sea shell", "the north lamp and a river", "x"]


def test_prediction_sets_are_the_labels_within_the_quantile(pruned: CPPResult) -> None:
    model = CPPModelForCausalLM.from_pretrained(pruned.directory)
    scores = model.scores(TEXTS)
    for row, prediction in enumerate(model.predict_set(TEXTS)):
        assert list(prediction["scores"]) == list(LABELS)
        np.testing.assert_array_equal(list(prediction["scores"].values()), scores[row])
        inside = {label for label in LABELS if prediction["scores"][label] <= model.contract.claims.quantile}
        assert set(prediction["set"]) == inside
        assert prediction["label"] == min(prediction["scores"], key=prediction["scores"].get)
        # The set is ordered, most probable first, and json takes it as it is.
        assert prediction["set"] == sorted(prediction["set"], key=prediction["scores"].get)
        assert 0 < prediction["probability"] <= 1 and json.dumps(prediction)
    assert model.predict_set([]) == []
    assert model.predict_set(TEXTS[0])[0]["label"] == model.predict_set(TEXTS)[0]["label"]


def test_plain_transformers_opens_the_folder_and_gives_the_same_logits(pruned: CPPResult) -> None:
    plain = AutoModelForCausalLM.from_pretrained(pruned.directory)
    ids = AutoTokenizer.from_pretrained(pruned.directory)("some text", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert torch.equal(plain(ids).logits, pruned.model.model(ids).logits)
    assert plain.config.architectures == ["LlamaForCausalLM"]
    assert not hasattr(plain.config, "quantization_config")


def _flip_last_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def _edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


DAMAGE = {
    "model.safetensors": lambda folder: _flip_last_byte(folder / "model.safetensors"),
    "config.json": lambda folder: _edit_json(folder / "config.json", rms_norm_eps=0.1),
    "tokenizer.json": lambda folder: _edit_json(folder / "tokenizer.json", normalizer={"type": "Lowercase"}),
    "manifest_digest": lambda folder: _edit_json(folder / "split_manifest.json", seed=1),
    "adapter_config.json": lambda folder: (folder / "adapter_config.json").write_text("{}"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_changed_file_is_refused_by_name(name: str, served_copy: Path) -> None:
    DAMAGE[name](served_copy)
    with pytest.raises(ContractViolation, match=name.replace(".", r"\.")):
        CPPModelForCausalLM.from_pretrained(served_copy)


def _claims(folder: Path, edit) -> None:
    path = folder / "reliability_contract.json"
    whole = json.loads(path.read_text())
    edit(whole["claims"])
    path.write_text(json.dumps(whole))


EDITS = {
    "quantile": lambda c: c["calibration"].update(quantile="inf"),
    "prompt": lambda c: c["task"].update(prompt=c["task"]["prompt"] + " "),
    "label order": lambda c: c["task"]["labels"].reverse(),
    "temperature": lambda c: c["score"].update(temperature="0x1.0000000000000p+1"),
    "alpha": lambda c: c["calibration"].update(alpha="0.5"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_claim_is_refused(edit: str, served_copy: Path) -> None:
    _claims(served_copy, EDITS[edit])
    with pytest.raises(ContractViolation, match="edited"):
        CPPModelForCausalLM.from_pretrained(served_copy)


def test_a_forged_digest_does_not_hide_a_wrong_quantile(served_copy: Path) -> None:
    from optimum_cpp.contract import ReliabilityContract

    contract = ReliabilityContract.load(served_copy)
    forged = dataclasses.replace(contract.claims.calibration, quantile="0x1.8000000000000p+3")
    ReliabilityContract(dataclasses.replace(contract.claims, calibration=forged), {}).save(served_copy)
    with pytest.raises(ContractViolation, match=r"calibration\.quantile"):
        CPPModelForCausalLM.from_pretrained(served_copy)


def test_weights_changed_in_memory_are_noticed(served_copy: Path) -> None:
    model = CPPModelForCausalLM.from_pretrained(served_copy)
    expected = model.predict_set(TEXTS)
    weight = next(iter(model.model.parameters()))
    with torch.no_grad():
        weight.mul_(1.0)  # written to, but the same
    assert model.predict_set(TEXTS) == expected
    with torch.no_grad():
        weight[0, 0] += 1
    with pytest.raises(ContractViolation, match="weights"):
        model.predict_set(TEXTS)


def test_verify_hashes_weights_that_no_counter_betrays(served_copy: Path) -> None:
    model = CPPModelForCausalLM.from_pretrained(served_copy)
    model.verify()
    next(iter(model.model.parameters())).data[0, 0] += 1
    with pytest.raises(ContractViolation, match="weights"):
        model.verify()


@pytest.mark.parametrize("field", ["prompt", "verbalizers", "temperature", "prior", "allow_empty", "tokenizer"])
def test_a_changed_way_of_scoring_is_refused_by_name(field: str, served_copy: Path) -> None:
    model = CPPModelForCausalLM.from_pretrained(served_copy)
    frozen, scorer = model.frozen, model.frozen.scorer
    expected = field
    if field == "prompt":
        scorer.task = dataclasses.replace(scorer.task, prompt=scorer.task.prompt.replace("Category", "category"))
    elif field == "verbalizers":
        scorer.task = dataclasses.replace(scorer.task, verbalizers=(*scorer.task.verbalizers[:-1], " flower"))
        expected = "labels"
    elif field == "tokenizer":
        from tokenizers import normalizers

        scorer.tokenizer.backend_tokenizer.normalizer = normalizers.Replace("sea", "fern")
    elif field == "allow_empty":
        model.frozen = dataclasses.replace(frozen, allow_empty=not frozen.allow_empty)
    else:
        value = {"temperature": 2.0, "prior": (0.0,) * len(LABELS)}[field]
        model.frozen = FrozenClassifier(
            scorer, dataclasses.replace(frozen.transform, **{field: value}), frozen.allow_empty, frozen.digest
        )
    with pytest.raises(ContractViolation, match=expected):
        model.predict_set(TEXTS)


def test_a_model_in_training_mode_or_with_another_configuration_is_refused(served_copy: Path) -> None:
    model = CPPModelForCausalLM.from_pretrained(served_copy)
    model.model.train()
    with pytest.raises(ContractViolation, match="training"):
        model.predict_set(TEXTS)
    model.model.eval()
    model.model.config.rms_norm_eps = 0.5
    with pytest.raises(ContractViolation, match="config"):
        model.predict_set(TEXTS)


@pytest.mark.parametrize("texts", [["\ud800"], [5], [None]])
def test_what_is_no_text_is_named(texts: list, pruned: CPPResult) -> None:
    with pytest.raises(DataError, match="text 0"):
        pruned.model.predict_set(texts)
    assert pruned.model.scores([]).shape == (0, len(LABELS))
    np.testing.assert_array_equal(pruned.model.scores("the sea"), pruned.model.scores(["the sea"]))


def test_a_folder_without_a_contract_and_the_wrong_class_are_refused(dense_folder: Path, served_copy: Path) -> None:
    with pytest.raises(ContractViolation, match=r"reliability_contract\.json"):
        CPPModelForCausalLM.from_pretrained(dense_folder)
    with pytest.raises(ModelError, match="encoder"):
        CPPModelForSequenceClassification.from_pretrained(served_copy)
    assert isinstance(CPPModel.from_pretrained(served_copy), CPPModel)


def test_no_code_of_the_folder_is_run(served_copy: Path) -> None:
    marker = served_copy / "ran"
    code = f"open({str(marker)!r}, 'w').close()\nfrom transformers import LlamaConfig as Evil\n"
    (served_copy / "evil.py").write_text(code)
    _edit_json(served_copy / "config.json", auto_map={"AutoConfig": "evil.Evil"}, model_type="evil")
    with pytest.raises((ContractViolation, ModelError)):
        CPPModelForCausalLM.from_pretrained(served_copy)
    from optimum_cpp.loading import load_model

    with pytest.raises(ModelError):
        load_model(served_copy)
    assert not marker.exists()
