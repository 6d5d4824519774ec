"""One tiny pruned model with its contract, shared by the tests of the upper floors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
import torch

from optimum_cpp.modeling import CPPResult
from optimum_cpp.pruner import CPPPruner
from tiny_models import byte_tokenizer, tiny_model
from tiny_runs import labelled_rows, small_config

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def dense_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dense Llama with its tokenizer, as a user has it on disk."""
    folder = tmp_path_factory.mktemp("models") / "dense"
    tiny_model("llama").save_pretrained(folder)
    byte_tokenizer(opening="<s>").save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def pool_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 labelled rows as a jsonl file."""
    path = tmp_path_factory.mktemp("data") / "pool.jsonl"
    labelled_rows(300, seed=1).to_json(path)
    return path


@pytest.fixture(scope="session")
def pruned(dense_folder: Path, pool_file: Path, tmp_path_factory: pytest.TempPathFactory) -> CPPResult:
    """The tiny model pruned at one half, with everything that an output folder holds."""
    folder = tmp_path_factory.mktemp("outputs") / "out"
    pruner = CPPPruner.from_pretrained(dense_folder)
    return pruner.prune(config=small_config(dataset=str(pool_file)), save_directory=folder)


@pytest.fixture
def served_copy(pruned: CPPResult, tmp_path: Path) -> Path:
    """A copy of the pruned folder that a test may damage."""
    return Path(shutil.copytree(pruned.directory, tmp_path / "copy"))


@pytest.fixture
def new_rows() -> Callable[[int], datasets.Dataset]:
    """Labelled rows that no shared fixture uses."""
    return lambda count: labelled_rows(count, seed=99)
