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

from optimum_cpp import ReliabilityContract
from optimum_cpp.modeling import CPPResult
from tiny_models import PROMPT
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


@pytest.mark.parametrize("limit", [20_000, 120_000], ids=["candidates", "the model"])
def test_a_full_disk_leaves_the_old_folder_and_says_so_in_one_sentence(
    limit: int, pruned: CPPResult, dense_folder: Path, pool_file: Path, tmp_path: Path
) -> None:
    """No file may grow beyond the limit, which the system reports as it does a full disk."""
    out = Path(shutil.copytree(pruned.directory, tmp_path / "place" / "out"))
    arguments = [
        "-m",
        dense_folder,
        "--dataset",
        pool_file,
        "--prompt",
        PROMPT,
        "--lambda_grid",
        "0",
        "--alpha",
        "0.25",
    ]
    arguments += ["--prune_rows", "16", "--val_rows", "80", "--conformal_rows", "60", "--test_rows", "100"]
    code = f"""
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.argv = ["optimum-cli", "cpp", "prune", *{[str(a) for a in arguments]!r}, "-o", {str(out)!r}, "--overwrite"]
from optimum.commands.optimum_cli import main
main()
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = found.stderr.strip().splitlines()[-1]
    assert found.returncode == 1 and last.startswith("error: Expected room for the output"), found.stderr[-2000:]
    assert "Traceback" not in found.stderr
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert ReliabilityContract.load(out).digest == pruned.contract.digest
