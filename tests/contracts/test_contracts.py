"""Folders as every released schema version wrote them still verify; new code may add checks, not break old promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimum_cpp import CPPModelForCausalLM
from optimum_cpp.verification import verify

HERE = Path(__file__).parent
# Digest of each contract, as its author would publish it.
WRITTEN = {"schema-1": "sha256:3a493ace8775ac8ebb9cca8f98560bc93c1830b0143973ddee6873893bd19221"}


@pytest.mark.parametrize("name", WRITTEN)
def test_an_old_folder_still_verifies(name: str) -> None:
    found = verify(HERE / name, dataset=str(HERE / f"{name}.jsonl"), rescore=16, expected_digest=WRITTEN[name])
    assert [finding for finding in found.findings if not finding.holds] == []


@pytest.mark.parametrize("name", WRITTEN)
def test_an_old_folder_still_serves(name: str) -> None:
    model = CPPModelForCausalLM.from_pretrained(HERE / name)
    predictions = model.predict_set(["sea shell path", "stone"])
    assert all(set(prediction["set"]) <= set(model.labels) for prediction in predictions)


def test_every_kept_folder_is_tested() -> None:
    assert {path.name for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(WRITTEN)
