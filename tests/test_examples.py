"""Every example runs from its first line."""

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optimum_cpp.candidates import Bench
from optimum_cpp.pruner import CPPPruner
from tiny_models import LABELS, PROMPT
from tiny_runs import small_config

EXAMPLES = Path(__file__).parents[1] / "examples"
VARIANTS = ("true", "all/root/rademacher", "snip")
OPTIONS = {
    "prompt": PROMPT,
    "prune_rows": "16",
    "val_rows": "80",
    "conformal_rows": "60",
    "test_rows": "100",
    "alpha": "0.2",
    "score": "prior_nll",
}


@pytest.fixture(scope="module")
def comparison() -> dict[str, Any]:
    """The names of the comparison's script."""
    return runpy.run_path(str(EXAMPLES / "compare_saliencies.py"))


def arguments(model: Path, rows: Path, output: Path, *rest: str) -> list[str]:
    options = [part for name, value in OPTIONS.items() for part in (f"--{name}", value)]
    return [
        *("-m", str(model), "--dataset", str(rows), "-o", str(output), *options),
        *("--label_names", *LABELS, "--lambda_grid", "0", "0.3", "1", "--variants", *VARIANTS, *rest),
    ]


def test_a_comparison_that_was_interrupted_goes_on_and_ends_the_same(
    comparison: dict[str, Any], dense_folder: Path, pool_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    comparison["main"](arguments(dense_folder, pool_file, whole, "--seeds", "0", "1"))

    prune, calls = Bench.prune, []

    def interrupted(self: Bench, *rest: Any) -> Any:
        calls.append(rest[0])
        if len(calls) == 4:
            raise KeyboardInterrupt
        return prune(self, *rest)

    monkeypatch.setattr(Bench, "prune", interrupted)
    with pytest.raises(KeyboardInterrupt):
        comparison["main"](arguments(dense_folder, pool_file, parts, "--seeds", "0", "1"))
    comparison["main"](arguments(dense_folder, pool_file, parts, "--seeds", "0", "1"))
    # The base and six candidates of each seed, and the one that was interrupted.
    assert len(calls) == 2 * 7 + 1
    assert (parts / "comparison.md").read_text() == (whole / "comparison.md").read_text()


def test_a_comparison_selects_and_tests_as_prune_does(
    comparison: dict[str, Any], dense_folder: Path, pool_file: Path, tmp_path: Path
) -> None:
    comparison["main"](arguments(dense_folder, pool_file, tmp_path / "out"))
    config = small_config(dataset=str(pool_file), lambda_grid=("0", "0.3", "1"), score="prior_nll")
    for variant, changes in {
        "true": {},
        "all-root-rademacher": {"saliency": "all", "importance_scale": "root", "estimator": "rademacher"},
    }.items():
        pruner = CPPPruner.from_pretrained(dense_folder)
        result = pruner.prune(config=config.replace(**changes), save_directory=tmp_path / variant)
        found = {row.model: row.counts for row in result.results.test}
        folder = tmp_path / "out" / "seed-0"
        assert json.loads((folder / f"choice-{variant}.json").read_text())["lam"] == result.results.lam
        for name, counts in (("dense", found["dense"]), (variant, found["chosen"])):
            compared = json.loads((folder / f"test-{name}.json").read_text())
            assert compared["covered"] == counts.covered and compared["size_sum"] == counts.size_sum
            np.testing.assert_allclose(compared["ece"], counts.ece)
