import dataclasses
import time

import pytest

from optimum_cpp.configuration import CPPConfig, decimal_string
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
]


@pytest.mark.parametrize(("name", "value", "hint"), BAD_VALUES)
def test_a_value_out_of_range_is_one_sentence_that_names_the_field(name: str, value: object, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        CPPConfig(**{name: value})
    message = str(caught.value)
    assert hint in message and "\n" not in message
    assert name in message or name == "selection"


def test_hostile_decimals_are_refused_at_once() -> None:
    start = time.monotonic()
    with pytest.raises(UsageError):
        decimal_string("alpha", "1e-99999999")
    assert time.monotonic() - start < 1


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
