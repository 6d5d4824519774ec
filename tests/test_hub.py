"""Push and load with the real client of the Hub, in processes of their own, against a server on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hub_server import Hub, Repository, serving
from huggingface_hub import ModelCard

from optimum_cpp.errors import ContractViolation, UsageError
from optimum_cpp.hub import push_to_hub
from optimum_cpp.modeling import CPPResult

TEXTS = ["sea shell path", "thorn leaf", "a stone"]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub()) as running:
        yield running


def environment_of(hub: Hub, cache: Path, token: str | None = "hf_good") -> dict[str, str]:
    """Of a process whose Hub is the one on this machine."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    environment |= {
        "HF_ENDPOINT": hub.address,
        "HF_HOME": str(cache),
        "HF_HUB_DISABLE_XET": "1",
        "OMP_NUM_THREADS": "1",
    }
    environment |= {"HF_TOKEN": token} if token else {}
    return environment


def client(hub: Hub, cache: Path, script: str, token: str | None = "hf_good") -> Any:
    """What a script prints as JSON; it finds the texts in `texts`."""
    environment = environment_of(hub, cache, token)
    head = f"import json\ntexts = {TEXTS!r}\n"
    found = subprocess.run([sys.executable, "-c", head + script], capture_output=True, text=True, env=environment)
    assert found.returncode == 0, found.stderr[-3000:]
    return json.loads(found.stdout.splitlines()[-1])


def push(hub: Hub, cache: Path, folder: Path, options: str = "", token: str | None = "hf_good") -> dict[str, Any]:
    """The address of the commit, or the error's type and sentence."""
    return client(
        hub,
        cache,
        f"""
from optimum_cpp.hub import push_to_hub
try:
    print(json.dumps({{"url": push_to_hub({str(folder)!r}, "me/tiny", {options})}}))
except Exception as error:
    print(json.dumps({{"error": type(error).__name__, "message": str(error)}}))
""",
        token,
    )


def test_one_commit_that_serves_the_same_sets(hub: Hub, pruned: CPPResult, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in pruned.directory.rglob("*")}
    url = push(hub, tmp_path / "author", pruned.directory, "private=True")["url"]
    repository = hub.repositories["me/tiny"]
    assert repository.private and len(repository.commits) == 1
    assert url.endswith(repository.sha("main")) and pruned.contract.digest in repository.commits[0]["summary"]
    files = {str(path.relative_to(pruned.directory)) for path in pruned.directory.rglob("*") if path.is_file()}
    assert set(repository.commits[0]["added"]) == files >= {"handler.py", "requirements.txt", "report/results.json"}
    assert {path: path.stat().st_mtime_ns for path in pruned.directory.rglob("*")} == before

    found = client(
        hub,
        tmp_path / "reader",
        """
from optimum_cpp import CPPModelForCausalLM
from transformers import AutoModelForCausalLM
from optimum_cpp.loading import weights_digest
from optimum_cpp.verification import verify
model = CPPModelForCausalLM.from_pretrained("me/tiny")
plain = AutoModelForCausalLM.from_pretrained("me/tiny")
moved = [f.field for f in verify("me/tiny").findings if not f.holds]
print(json.dumps([model.predict_set(texts), weights_digest(plain), moved]))
""",
    )
    assert found == [pruned.model.predict_set(TEXTS), pruned.contract.claims.model.weights_digest, []]


def test_the_card_names_the_repository_and_its_figures(hub: Hub, pruned: CPPResult, tmp_path: Path) -> None:
    push(hub, tmp_path, pruned.directory)
    text = hub.repositories["me/tiny"].revisions["main"]["README.md"].decode()
    card = ModelCard(text)
    index = yaml.safe_load(card.data.to_yaml())["model-index"][0]
    assert index["name"] == "me/tiny"
    metrics = {metric["type"]: metric["value"] for result in index["results"] for metric in result["metrics"]}
    chosen = next(row.counts for row in pruned.results.test if row.model == "chosen")
    assert metrics == {
        "coverage": chosen.coverage,
        "mean_set_size": chosen.mean_set_size,
        "accuracy": chosen.accuracy,
        "ece": chosen.ece,
    }
    assert 'from_pretrained("me/tiny")' in text and 'from_pretrained("out")' not in text
    assert text.count("# `me/tiny`") == 1 and 'verify -m "me/tiny"' in text


def test_a_second_push_leaves_nothing_of_the_first(hub: Hub, pruned: CPPResult, tmp_path: Path) -> None:
    hub.repositories["me/tiny"] = Repository(
        False, revisions={"main": {"model-00002-of-00002.safetensors": b"old", ".gitattributes": b"x"}}
    )
    push(hub, tmp_path, pruned.directory, "gated='manual'")
    repository = hub.repositories["me/tiny"]
    assert "model-00002-of-00002.safetensors" in repository.commits[0]["deleted"]
    assert ".gitattributes" in repository.revisions["main"] and repository.gated == "manual"
    assert client(
        hub, tmp_path, "from optimum_cpp.verification import verify\nprint(json.dumps(verify('me/tiny').holds))"
    )


def test_a_pull_request(hub: Hub, pruned: CPPResult, tmp_path: Path) -> None:
    hub.repositories["me/tiny"] = Repository(False, revisions={"main": {"README.md": b"theirs"}})
    assert push(hub, tmp_path, pruned.directory, "create_pr=True")["url"].endswith("/discussions/1")
    repository = hub.repositories["me/tiny"]
    assert repository.revisions["main"] == {"README.md": b"theirs"}
    assert "reliability_contract.json" in repository.revisions["refs/pr/1"]


def test_the_handler_serves_from_a_download(hub: Hub, pruned: CPPResult, tmp_path: Path) -> None:
    push(hub, tmp_path, pruned.directory)
    found = client(
        hub,
        tmp_path / "endpoint",
        """
import importlib.util
from huggingface_hub import snapshot_download
folder = snapshot_download("me/tiny")
spec = importlib.util.spec_from_file_location("handler", folder + "/handler.py")
handler = importlib.util.module_from_spec(spec)
spec.loader.exec_module(handler)
endpoint = handler.EndpointHandler(folder)
print(json.dumps([endpoint({"inputs": texts}), endpoint({"inputs": texts[0]})]))
""",
    )
    expected = pruned.model.predict_set(TEXTS)
    assert found == [expected, expected[0]]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "split_manifest.json"])
def test_a_file_changed_on_the_server_is_refused_after_download(
    name: str, hub: Hub, pruned: CPPResult, tmp_path: Path
) -> None:
    push(hub, tmp_path, pruned.directory)
    files = hub.repositories["me/tiny"].revisions["main"]
    files[name] = files[name][:-2] + b"  " if name.endswith("json") else files[name][:-4] + b"\x00\x00\x80\x3f"
    message = client(
        hub,
        tmp_path / "reader",
        """
from optimum_cpp import CPPModelForCausalLM
try:
    CPPModelForCausalLM.from_pretrained("me/tiny")
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
""",
    )
    field = "manifest_digest" if name.startswith("split") else f"model.files.{name}"
    assert message[0] == "ContractViolation" and field in message[1]


def test_what_the_hub_refuses_is_one_sentence(hub: Hub, pruned: CPPResult, tmp_path: Path) -> None:
    assert push(hub, tmp_path, pruned.directory, token=None)["error"] == "UsageError"
    assert "HF_TOKEN" in push(hub, tmp_path, pruned.directory, token=None)["message"]
    for status in (403, 404):
        hub.refuse = status
        found = push(hub, tmp_path, pruned.directory)
        assert found["error"] == "HubError" and "me/tiny" in found["message"] and "\n" not in found["message"]
    hub.refuse, hub.address = None, "http://127.0.0.1:9"
    assert push(hub, tmp_path, pruned.directory)["error"] == "HubError"
    assert not hub.repositories


@pytest.mark.parametrize("repo_id", ["me/a b", "a/b/c", "", "-x"])
def test_a_repo_id_that_is_none_is_refused(repo_id: str, pruned: CPPResult) -> None:
    with pytest.raises(UsageError, match="repo_id"):
        push_to_hub(pruned.directory, repo_id, token="hf_good")


def test_nothing_broken_is_uploaded(served_copy: Path, dense_folder: Path) -> None:
    with pytest.raises(ContractViolation, match="hold"):
        push_to_hub(dense_folder, "me/tiny", token="hf_good")
    (served_copy / "config.json").write_text("{}")
    with pytest.raises(ContractViolation, match=r"config\.json"):
        push_to_hub(served_copy, "me/tiny", token="hf_good")


@pytest.mark.parametrize(
    "step",
    [
        "/commit/",
        *(pytest.param(step, marks=pytest.mark.slow) for step in ("/create", "/preupload/", "/batch", "/lfs/")),
    ],
)
def test_a_push_that_is_killed_leaves_a_whole_revision(step: str, hub: Hub, pruned: CPPResult, tmp_path: Path) -> None:
    """At every request that writes: the repository has its old revision or the new one, the folder is as it was."""
    before = {path: path.stat().st_mtime_ns for path in pruned.directory.rglob("*")}
    old = {"README.md": b"old"}
    hub.repositories["me/tiny"] = Repository(False, revisions={"main": dict(old)})
    running: list[subprocess.Popen[bytes]] = []

    def kill(path: str) -> None:
        if step in path:
            running[0].kill()

    hub.on_write = kill
    script = f"from optimum_cpp.hub import push_to_hub\npush_to_hub({str(pruned.directory)!r}, 'me/tiny')"
    running.append(subprocess.Popen([sys.executable, "-c", script], env=environment_of(hub, tmp_path)))
    assert running[0].wait() == -signal.SIGKILL
    found = hub.repositories["me/tiny"].revisions["main"]
    assert found == old or "reliability_contract.json" in found
    assert {path: path.stat().st_mtime_ns for path in pruned.directory.rglob("*")} == before
    hub.on_write = lambda path: None
    assert "url" in push(hub, tmp_path, pruned.directory)
