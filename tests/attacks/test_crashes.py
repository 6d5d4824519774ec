"""kill -9 at every write: the old folder or the new one, never a mixture, and the next run succeeds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from optimum_cpp.modeling import CPPResult
from tiny_runs import labelled_rows

SCRIPT = Path(__file__).parent / "crashing.py"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def crash(**given: object) -> dict[str, Any]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
    }
    asked = json.dumps({name: str(value) for name, value in given.items()})
    found = subprocess.run([sys.executable, SCRIPT, asked], capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr[-2000:]
    return dict(json.loads(found.stdout.splitlines()[-1]))


def check(found: dict[str, Any], out: Path) -> None:
    assert found["before"] != found["after"]
    assert set(found["states"]) == {found["before"], found["after"]}  # the place was never half filled
    assert found["killed"] == found["chosen"] >= 7
    assert found["final"] == [0, found["after"]]
    assert found["left"] == [out.name]  # the next run took away what the killed ones had left


@pytest.mark.parametrize(
    ("over", "steps"),
    [
        ("an earlier output", "some"),
        pytest.param("nothing", "some", marks=pytest.mark.slow),
        pytest.param("an earlier output", "all", marks=pytest.mark.slow),
    ],
)
def test_prune(pruned: CPPResult, dense_folder: Path, pool_file: Path, tmp_path: Path, over: str, steps: str) -> None:
    out = tmp_path / "place" / "out"
    if over != "nothing":
        shutil.copytree(pruned.directory, out)
    check(crash(command="prune", model=dense_folder, dataset=pool_file, out=out, steps=steps), out)


@pytest.mark.parametrize("steps", ["some", pytest.param("all", marks=pytest.mark.slow)])
def test_calibrate(pruned: CPPResult, tmp_path: Path, steps: str) -> None:
    out, rows = tmp_path / "place" / "out", tmp_path / "rows.jsonl"
    shutil.copytree(pruned.directory, out)
    labelled_rows(200, seed=55).to_json(rows)
    check(crash(command="calibrate", model=pruned.directory, dataset=rows, out=out, steps=steps), out)
