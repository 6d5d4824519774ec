"""The public face: data roles, output folders, and the paper's own call."""

from pathlib import Path

import pytest
import torch

import optimum_cpp
import optimum_cpp.pruner as pruner_module
from optimum_cpp import CalibrationPreservingPruner, CPPConfig, CPPPruner
from optimum_cpp.errors import CPPError, DataError, ModelError, UsageError
from optimum_cpp.modeling import CPPResult
from optimum_cpp.pruner import get_data_roles
from tiny_models import LABELS, PROMPT, byte_tokenizer, tiny_model
from tiny_runs import labelled_rows, small_config


def test_the_output_folder_holds_what_it_should(pruned: CPPResult) -> None:
    names = {path.name for path in pruned.directory.iterdir()}
    assert names >= {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "cpp_config.json",
        "reliability_contract.json",
        "split_manifest.json",
        "README.md",
        "report",
    }
    assert {path.name for path in (pruned.directory / "report").iterdir()} >= {"results.json", "results.csv"}
    assert not [path for path in pruned.directory.parent.iterdir() if path.name.startswith(".")]


def test_the_papers_call_returns_the_model_and_its_quantile(dense_folder: Path) -> None:
    options = {"label_names": LABELS, "prompt": PROMPT, "base_pruner": "wanda", "lambda_grid": [0, 0.3]}
    pool = labelled_rows(150, seed=11)
    given = {
        "prune_dataset": pool.select(range(20)),
        "validation_dataset": pool.select(range(20, 80)),
        "conformal_dataset": pool.select(range(80, 150)),
    }
    model, quantile = CalibrationPreservingPruner(
        model=dense_folder, target_sparsity=0.5, target_coverage=0.8, **given, **options
    ).prune()
    assert model.contract.claims.score.name == "nll"
    assert model.contract.claims.calibration.alpha == "0.2" and model.contract.claims.calibration.n == 70
    assert quantile == model.contract.claims.quantile
    loaded = tiny_model("llama")
    same, again = CalibrationPreservingPruner(
        model=loaded, tokenizer=byte_tokenizer(opening="<s>"), target_coverage="0.8", **given, **options
    ).prune()
    assert again == quantile and same.predict_set("the sea") == model.predict_set("the sea")
    with pytest.raises(UsageError, match="tokenizer"):
        CalibrationPreservingPruner(model=loaded, **given)
    with pytest.raises(UsageError, match="target_coverage"):
        CalibrationPreservingPruner(model=dense_folder, target_coverage="most", **given)


def test_a_full_output_folder_is_refused_before_any_work(
    dense_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    monkeypatch.setattr(pruner_module, "run", lambda *a, **k: pytest.fail("the algorithm ran"))
    with pytest.raises(UsageError, match="overwrite"):
        CPPPruner.from_pretrained(dense_folder).prune(config=small_config(), save_directory=tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "mine"


@pytest.mark.parametrize("step", ["run", "write_output"])
def test_a_failure_leaves_nothing_half_written(
    step: str, dense_folder: Path, pool_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(pruner_module, step)

    def failing(*args, **kwargs):
        original(*args, **kwargs)
        raise RuntimeError("the disk is gone")

    monkeypatch.setattr(pruner_module, step, failing)
    config = small_config(dataset=str(pool_file), lambda_grid=("0",), base_pruner="magnitude", test_rows="0")
    with pytest.raises(RuntimeError):
        CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_the_result_still_works(dense_folder: Path, pool_file: Path) -> None:
    config = small_config(dataset=str(pool_file), lambda_grid=("0",), base_pruner="magnitude", test_rows="0")
    result = CPPPruner.from_pretrained(dense_folder).prune(config=config)
    assert result.model.predict_set("the sea")[0]["label"] in LABELS
    assert result.directory.is_dir()


def test_training_rows_are_entered_in_the_ledger_and_never_evaluated(dense_folder: Path, tmp_path: Path) -> None:
    rows = labelled_rows(300, seed=1)
    config = small_config(lambda_grid=("0",), base_pruner="magnitude", test_rows="0")
    pruner = CPPPruner.from_pretrained(dense_folder)
    roles = pruner.get_data_roles(rows, config=config)
    conformal = rows["text"][roles.manifest.roles["conformal"].indices[0]]
    with pytest.raises(DataError, match="1 of the 1 training rows"):
        pruner.prune(config=config, roles=roles, training_texts=[f" {conformal.upper()} "])
    result = pruner.prune(
        config=config,
        roles=roles,
        save_directory=tmp_path / "out",
        training_texts=roles.prune.texts,
    )
    from optimum_cpp.data import SplitManifest

    manifest = SplitManifest.load(result.directory / "split_manifest.json")
    assert set(manifest.ledger.to_dict()["train"]) == set(manifest.roles["prune"].texts)


BAD = {
    "an unknown column": (dict(text_column="txet"), "txet"),
    "a label outside the space": (dict(label_names=LABELS[:-1]), "plants"),
    "a missing data set": (dict(dataset="nowhere.jsonl"), "nowhere.jsonl"),
    "no data set": (dict(dataset=None), "dataset"),
    "a prompt without the text": (dict(prompt="Category:"), "{text}"),
    "an unknown task": (dict(task="dbpedia"), "dbpedia_14"),
    "an unknown split": (dict(split=("testt",)), "testt"),
    "an unknown matrix": (dict(target_modules=("qq_proj",)), "qq_proj"),
    "nothing left to prune": (
        dict(ignore=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")),
        "none is left",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    case: str, dense_folder: Path, pool_file: Path, tmp_path: Path
) -> None:
    changes, hint = BAD[case]
    config = small_config(**{"dataset": str(pool_file), "test_rows": "0"} | changes)
    with pytest.raises(CPPError) as caught:
        CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    assert hint in str(caught.value) and "\n" not in str(caught.value).replace("\\n", "")
    assert list(tmp_path.iterdir()) == []


def test_nan_weights_are_an_error_that_names_them(dense_folder: Path, pool_file: Path, tmp_path: Path) -> None:
    pruner = CPPPruner.from_pretrained(dense_folder)
    with torch.no_grad():
        pruner.loaded.model.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="NaN"):
        pruner.prune(config=small_config(dataset=str(pool_file)), save_directory=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_too_few_rows_for_alpha_warn_and_give_whole_sets(dense_folder: Path, pool_file: Path, tmp_path: Path) -> None:
    config = small_config(
        dataset=str(pool_file), alpha="0.01", lambda_grid=("0",), base_pruner="magnitude", test_rows="50"
    )
    with pytest.warns(UserWarning, match="99"):
        result = CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=tmp_path / "out")
    assert result.contract.claims.quantile == float("inf")
    row = next(row for row in result.results.test if row.model == "chosen")
    assert row.counts.size_sum == 50 * len(LABELS) and row.band == (50, 50)
    opened = optimum_cpp.CPPModelForCausalLM.from_pretrained(tmp_path / "out")
    assert len(opened.predict_set("the sea")[0]["set"]) == len(LABELS)


def test_small_pools_share_their_rows_out_and_say_so(pool_file: Path) -> None:
    roles = get_data_roles(config=CPPConfig(dataset=str(pool_file), label_names=LABELS))
    assert sum(roles.sizes.values()) == 300 and roles.manifest.exceptions
    assert roles.sizes["conformal"] == 1024 * 300 // 8072


def test_a_folder_with_a_contract_makes_a_pruner_that_serves(pruned: CPPResult) -> None:
    pruner = CPPPruner.from_pretrained(pruned.directory)
    assert pruner.predict_set("the sea") == pruned.model.predict_set("the sea")
    row = pruner.evaluate()
    chosen = next(claim for claim in pruned.contract.claims.evaluation if claim.model == "chosen")
    assert (row.counts.covered, row.counts.size_sum, row.counts.correct) == (
        chosen.covered,
        chosen.size_sum,
        chosen.correct,
    )
