import re

import pytest
import yaml
from sample_results import LABELS, sample_results

from optimum_cpp.model_card import code_span, plain_text, public_name, render_model_card

SIZES = {"prune": 10, "val_cal": 8, "val_eval": 8, "conformal": 50, "test": 100}
FIGURES = ["report/set_sizes.png", "report/lambda_grid.png", "report/coverage.png"]


def _card(**changes: object) -> tuple[dict, str]:
    text = render_model_card(
        sample_results(**changes), repo_or_folder="me/pruned", kind="decoder", figures=FIGURES, sizes=SIZES
    )
    _, metadata, body = text.split("---\n", 2)
    return yaml.safe_load(metadata), body


def test_the_metadata_has_plain_numbers_of_the_model_in_the_folder() -> None:
    metadata, _ = _card()
    assert metadata["library_name"] == "transformers" and metadata["base_model"] == "org/model"
    assert {"optimum-cpp", "pruning", "conformal-prediction"} <= set(metadata["tags"])
    metrics = {m["type"]: m["value"] for m in metadata["model-index"][0]["results"][0]["metrics"]}
    assert metrics == {"coverage": 0.91, "mean_set_size": 1.4, "accuracy": 0.65, "ece": 0.125}


def test_the_card_says_what_holds_and_what_does_not() -> None:
    _, body = _card()
    for words in (
        "marginal",
        "exchangeable",
        "subgroup",
        "shifted",
        "void",
        "sha256:abc",
        "predict_set",
        "stored dense",
    ):
        assert words in body, words
    row = next(line for line in body.splitlines() if line.startswith("| chosen"))
    assert [cell.strip() for cell in row.strip("|").split("|")][1:6] == [
        "0.3",
        "0.9100 (outside)",
        "0.7800 to 0.9000",
        "1.400",
        "0.6500",
    ]
    assert all(f"]({figure})" in body for figure in FIGURES)


def test_hostile_names_stay_text() -> None:
    metadata, body = _card()
    assert "license" not in metadata
    for label in LABELS:
        assert code_span(label) in body
    assert "\nlicense: evil" not in body
    assert "/home/somebody" not in body and "rows.jsonl" in body
    assert "](http://evil)" not in re.sub(r"(`+).*?\1", "", body)


def test_a_calibration_alone_and_a_run_without_test_rows() -> None:
    metadata, body = _card(test=(), verdicts={}, validation=(), dense_validation=None, lam=None, base_pruner=None)
    assert "model-index" not in metadata and "predict_set" in body


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("org/model", "org/model"),
        ("/a/b/c.jsonl", "c.jsonl"),
        ("a/b/c/", "c"),
        ("C:\\x\\y", "y"),
        ("x/y/a+/z/b", "a+b"),
    ],
)
def test_local_paths_show_their_last_part_only(name: str, shown: str) -> None:
    assert public_name(name) == shown


def test_text_is_escaped() -> None:
    assert plain_text("a|b*c_[x]<i>") == r"a\|b\*c\_\[x\]\<i\>"
    assert code_span("a`b") == "``a`b``" and code_span("`") == "`` ` ``" and code_span("") == "` `"
