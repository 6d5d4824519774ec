"""Kill a run at one of its writes, over and over, and look at what is left.

    python tests/attacks/crashing.py '{"command": "prune", "model": ..., "dataset": ..., "out": ..., "steps": "some"}'

Every step is a process of its own, forked from one that has everything imported; it is killed with SIGKILL
just before the n-th event that changes something below the output's parent folder. Afterwards the output
must be the old folder or the new one, whole. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from optimum_cpp import CPPPruner, recalibrate
from optimum_cpp.contract import ReliabilityContract, require, verify_folder
from tiny_runs import small_config

CHANGES = {"os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.chmod", "os.link", "shutil.rmtree", "shutil.copyfile"}
# In half-written folders the end matters most: everything is there but its place.
LAST, BETWEEN = 5, 2


def changes_something(event: str, arguments: tuple[Any, ...], root: str) -> bool:
    """Whether an audit event is a write below `root`, or the exchange of two folders."""
    if event == "ctypes.dlsym":
        return arguments[1] == "renameat2"
    if event == "open":
        path, mode, flags = arguments
        writes = (isinstance(mode, str) and set(mode) & set("wxa+")) or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        return bool(writes) and str(path).startswith(root)
    return event in CHANGES and any(str(argument).startswith(root) for argument in arguments)


def run_until(step: int | None, root: str, work: Callable[[], object]) -> int:
    """In this process: kill it before the step, or count how many there are."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if changes_something(event, arguments, root):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    work()
    return seen


def fork(step: int | None, root: str, work: Callable[[], object]) -> tuple[int, int]:
    """Signal that ended the process, and its count of steps."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, str(run_until(step, root, work)).encode())
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reader) as source:
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), int(source.read() or 0)


def state_of(out: Path) -> str:
    """Digest of a whole folder, or nothing where there is none; anything between is an error."""
    if not out.exists():
        return "none"
    contract = ReliabilityContract.load(out)
    require(verify_folder(out, contract.claims))
    for name in ("README.md", "cpp_config.json", "report/results.json"):
        assert (out / name).is_file(), name
    return contract.digest


def main(given: dict[str, str]) -> dict[str, Any]:
    """Walk through the steps of one command; the output folder may exist before."""
    torch.set_num_threads(1)
    out, old = Path(given["out"]), Path(given["out"] + "-old") / "copy"
    config = small_config(dataset=given["dataset"], alpha="0.25")

    def work(target: Path) -> object:
        if given["command"] == "prune":
            return CPPPruner.from_pretrained(given["model"]).prune(config=config, save_directory=target, overwrite=True)
        return recalibrate(given["model"], config=config, save_directory=target, overwrite=True)

    def prepare(target: Path) -> None:
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir()
        if old.exists():
            shutil.copytree(old, target)

    if out.exists():
        shutil.copytree(out, old)
    prepare(out)
    before = state_of(out)
    work(out)  # here, so that the forked processes find everything imported
    prepare(out)
    code, total = fork(None, str(out.parent), partial(work, out))
    assert code == 0, code
    after, states, killed = state_of(out), set(), 0
    steps = range(1, total + 1)
    chosen = list(steps) if given["steps"] == "all" else sorted({*steps[-LAST:], *steps[:: max(1, total // BETWEEN)]})
    for step in chosen:
        prepare(out)
        code, _ = fork(step, str(out.parent), partial(work, out))
        killed += code == signal.SIGKILL
        states.add(state_of(out))
    final, _ = fork(None, str(out.parent), partial(work, out))
    return {
        "before": before, "after": after, "states": sorted(states), "killed": killed, "chosen": len(chosen),
        "final": [final, state_of(out)], "left": sorted(path.name for path in out.parent.iterdir()),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
