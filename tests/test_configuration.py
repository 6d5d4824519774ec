import dataclasses

import pytest

from optimum_cpp.configuration import CPPConfig
from optimum_cpp.errors import UsageError

BAD_VALUES = [
    ("sparsity", "1", "[0, 1)"),
    ("sparsity", "-0.1", "[0, 1)"),
    ("sparsity", "half", "decimal"),
    ("alpha", "0", "(0, 1)"),
    ("alpha", "1", "(0, 1)"),
    ("alpha", "nan", "decimal"),
    ("alpha", "inf", "decimal"),
    ("alpha", "1/3", "decimal"),
    ("alpha", "0.1_0", "decimal"),
    ("alpha", "1e-99999999", "decimal"),
    ("epsilon_size", "-1", "at least 0"),
    ("lambda_grid", ("0.1", "0.3"), "hold 0"),
    ("lambda_grid", ("0", "1.1"), "[0, 1]"),
    ("lambda_grid", ("0", "0.0"), "once"),
    ("lambda_grid", "0", "list"),
    ("base_pruner", "wandaa", "wanda"),
    ("score", "nlll", "nll"),
    ("prune_rows", 0, "above 0"),
    ("val_rows", 7, "even"),
    ("conformal_rows", 1.5, "whole number"),
    ("test_rows", "-1", "'all'"),
    ("test_rows", "many", "'all'"),
    ("temperature", "0", "above 0"),
    ("temperature", "hot", "decimal"),
    ("dtype", "int8", "float32"),
    ("on_duplicates", "keep", "drop"),
    ("selection", "learn_then_test", "ltt_risk"),
    ("test_rows", "9" * 5000, "'all'"),
    ("base_pruner", ["wanda"], "text"),
    ("seed", "x", "whole number"),
    ("prompt", 5, "text"),
    ("length_normalize", "no", "True or False"),
    ("saliency", "truee", "true, top_k, threshold, all, snip"),
    ("saliency", None, "text"),
    ("saliency_score", "nlll", "nll, label_nll, prior_nll"),
    ("estimator", "gaussian", "exact, rademacher"),
    ("importance_scale", "cube", "square, root"),
    ("importance_scale", "absolute", "square, root"),
    ("num_sketches", 0, "above 0"),
    ("num_sketches", 1.5, "whole number"),
    ("num_sketches", True, "whole number"),
    ("saliency_memory", 0, "above 0"),
    ("top_k", 0, "above 0"),
    ("top_k", "3", "whole number"),
]


@pytest.mark.parametrize(("name", "value", "hint"), BAD_VALUES)
def test_a_value_out_of_range_is_one_sentence_that_names_the_field(name: str, value: object, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        CPPConfig(**{name: value})
    message = str(caught.value)
    assert hint in message and "\n" not in message
    assert name in message or name == "selection"


@pytest.mark.parametrize("name, value", [("estimator", "rademacher"), ("importance_scale", "root")])
def test_snip_leaves_no_choice_of_estimator_and_scale(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"default `{name}` with saliency snip, .* but got {value}"):
        CPPConfig(saliency="snip", **{name: value})  # type: ignore[arg-type]
    # Also in a copy, and not as a base pruner.
    with pytest.raises(UsageError, match="snip"):
        CPPConfig(saliency="snip").replace(**{name: value})
    assert getattr(CPPConfig(base_pruner="snip", **{name: value}), name) == value  # type: ignore[arg-type]


def test_sketches_are_for_random_signs() -> None:
    with pytest.raises(UsageError, match="`num_sketches` only with estimator rademacher, but got 4 with exact"):
        CPPConfig(num_sketches=4)


@pytest.mark.parametrize("saliency", ["true", "top_k", "threshold", "all"])
def test_every_other_saliency_takes_every_estimator_and_scale(saliency: str) -> None:
    config = CPPConfig(saliency=saliency, estimator="rademacher", num_sketches=4, importance_scale="root", top_k=2)
    assert CPPConfig.from_dict(config.to_dict()) == config


def test_the_defaults_are_the_papers() -> None:
    config = CPPConfig()
    assert (config.saliency, config.saliency_score, config.importance_scale) == ("true", "nll", "square")
    assert (config.estimator, config.top_k, config.num_sketches) == ("exact", 3, 1)


def test_decimals_are_kept_as_they_were_written() -> None:
    config = CPPConfig(alpha=0.1, sparsity="0.50", lambda_grid=(0, 0.1, "0.30"))  # type: ignore[arg-type]
    assert (config.alpha, config.sparsity, config.lambda_grid) == ("0.1", "0.50", ("0", "0.1", "0.30"))


def test_a_recipe_survives_its_file(tmp_path) -> None:
    config = CPPConfig(dataset="somewhere", split=("train", "test"), length_normalize=True, temperature="fit", seed=7)
    config.save_pretrained(tmp_path)
    assert CPPConfig.from_pretrained(tmp_path) == config


def test_unknown_options_in_a_file_are_refused(tmp_path) -> None:
    (tmp_path / "cpp_config.json").write_text('{"sparsitty": "0.5"}')
    with pytest.raises(UsageError, match="sparsitty"):
        CPPConfig.from_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"cpp_config\.json"):
        CPPConfig.from_pretrained(tmp_path / "nowhere")
    for damaged in (b"{", b"[]", b"\xff", b'{"score": []}'):
        (tmp_path / "cpp_config.json").write_bytes(damaged)
        with pytest.raises(UsageError):
            CPPConfig.from_pretrained(tmp_path)


def test_every_field_has_a_help_text_and_a_group() -> None:
    for item in dataclasses.fields(CPPConfig):
        assert len(item.metadata["help"]) > 10 and item.metadata["group"], item.name
