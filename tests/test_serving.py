from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optimum_cpp.errors import ContractViolation, DataError
from optimum_cpp.modeling import CPPResult
from optimum_cpp.serving import EndpointHandler


@pytest.fixture(scope="module")
def endpoint(pruned: CPPResult) -> EndpointHandler:
    return EndpointHandler(str(pruned.directory))


def test_answers_are_prediction_sets_in_json(endpoint: EndpointHandler, pruned: CPPResult) -> None:
    expected = pruned.model.predict_set(["the sea", "a stone"])
    assert endpoint({"inputs": ["the sea", "a stone"]}) == expected
    assert endpoint({"inputs": "the sea", "parameters": {}}) == expected[0]
    assert json.loads(json.dumps(endpoint({"inputs": "the sea"}), allow_nan=False)) == expected[0]


@pytest.mark.parametrize(
    "data", [{}, {"inputs": None}, {"inputs": []}, {"inputs": 3}, {"inputs": ["a", 3]}, "text", []]
)
def test_what_is_no_text_is_named(data: Any, endpoint: EndpointHandler) -> None:
    with pytest.raises(DataError, match="text"):
        endpoint(data)


def test_by_default_the_working_directory_is_served(
    pruned: CPPResult, monkeypatch: pytest.MonkeyPatch, endpoint: EndpointHandler
) -> None:
    monkeypatch.chdir(pruned.directory)
    assert EndpointHandler()({"inputs": "the sea"}) == endpoint({"inputs": "the sea"})


def test_a_folder_that_moved_is_not_served(served_copy: Path) -> None:
    (served_copy / "config.json").write_text("{}")
    with pytest.raises(ContractViolation, match=r"config\.json"):
        EndpointHandler(str(served_copy))
