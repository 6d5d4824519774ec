"""The commands as a user types them, in one process where that shows the same."""

import io
import json
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from key_pairs import write_pair

from optimum_cpp.modeling import CPPResult
from tiny_models import LABELS, PROMPT
from tiny_runs import labelled_rows

SIZES = "--prune_rows 16 --val_rows 80 --conformal_rows 60 --test_rows 100 --alpha 0.2 --lambda_grid 0 0.3".split()


@pytest.fixture(autouse=True)
def _leave_logging_and_warnings_as_they_were():
    logger, shown = logging.getLogger("optimum_cpp"), warnings.showwarning
    handlers, propagate = list(logger.handlers), logger.propagate
    yield
    logger.handlers, logger.propagate, warnings.showwarning = handlers, propagate, shown


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """`optimum-cli cpp ...` in this process; its exit code."""
    from optimum.commands.optimum_cli import main

    monkeypatch.setattr(sys, "argv", ["optimum-cli", "cpp", *map(str, arguments)])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def _prune(monkeypatch, dense_folder, pool_file, out, *more) -> int:
    given = ["-m", dense_folder, "--dataset", pool_file, "--prompt", PROMPT, "--label_names", *LABELS]
    return run(monkeypatch, "prune", *given, *SIZES, "-o", out, *more)


def test_prune_evaluate_predict_calibrate(
    dense_folder: Path, pool_file: Path, tmp_path: Path, monkeypatch, capsys, pruned: CPPResult
) -> None:
    out = tmp_path / "out"
    assert _prune(monkeypatch, dense_folder, pool_file, out, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["digest"] == pruned.contract.digest  # the same as through the Python interface

    assert run(monkeypatch, "evaluate", "-m", out) == 0
    assert "coverage" in capsys.readouterr().out

    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "the sea"}\n"a stone"\n')
    assert run(monkeypatch, "predict", "-m", out, "--input", texts, "--output", tmp_path / "sets.jsonl") == 0
    lines = [json.loads(line) for line in (tmp_path / "sets.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == ["the sea", "a stone"]
    expected = pruned.model.predict_set(["the sea", "a stone"])
    assert [line["set"] for line in lines] == [prediction["set"] for prediction in expected]

    fresh = tmp_path / "fresh.jsonl"
    labelled_rows(150, seed=77).to_json(fresh)
    capsys.readouterr()
    given = ["-m", out, "--dataset", fresh, "--alpha", "0.05", "--conformal_rows", "100", "--test_rows", "50"]
    assert run(monkeypatch, "calibrate", *given, "-o", tmp_path / "out2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["alpha"] == "0.05"
    assert run(monkeypatch, "evaluate", "-m", tmp_path / "out2", "--dataset", pool_file) == 1
    assert "already used" in capsys.readouterr().err


def test_predict_reads_stdin_and_writes_json_lines(pruned: CPPResult, monkeypatch, capsys) -> None:
    class Stdin(io.StringIO):
        def fileno(self) -> int:
            reader, writer = os.pipe()
            os.write(writer, "the sea\nüber stones\n".encode())
            os.close(writer)
            return reader

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert run(monkeypatch, "predict", "-m", pruned.directory) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["the sea", "über stones"]


BAD = {
    "sparsity": (["--sparsity", "1.0"], 2, "sparsity"),
    "alpha": (["--alpha", "0"], 2, "alpha"),
    "base pruner": (["--base_pruner", "wandaa"], 2, "wandaa"),
    "column": (["--text_column", "body"], 1, "body"),
    "label": (["--label_names", "film", "album"], 1, "label"),
    "prompt": (["--prompt", "Category:"], 2, "{text}"),
    "empty role": (["--prune_rows", "1000000", "--test_rows", "1000000"], 1, "empty"),
    "verbalizer file": (["--verbalizers", "nowhere.json"], 2, "nowhere.json"),
    "model": (["-m", "no/such model"], 1, "no/such model"),
    "number": (["--seed", "x"], 2, "seed"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_exits_with_one_sentence(
    case: str, dense_folder: Path, pool_file: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    more, code, hint = BAD[case]
    assert _prune(monkeypatch, dense_folder, pool_file, tmp_path / "out", *more) == code
    errors = capsys.readouterr().err
    assert hint in errors and "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


PREDICT_BAD = {
    "an empty line": ('{"text": "a"}\n\n', "line 2"),
    "deep nesting": ("[" * 100_000 + "\n", "line 1"),
    "half a character": ('{"text": "\\ud800 x"}\n', "line 1"),
    "no JSON": ("text\n", "line 1"),
    "another column": ('{"body": "a"}\n', "text_column"),
    "a number": ('{"text": 3}\n', "line 1"),
}


@pytest.mark.parametrize("case", PREDICT_BAD)
def test_predict_names_the_line_and_leaves_no_output(case, pruned, tmp_path, monkeypatch, capsys) -> None:
    content, hint = PREDICT_BAD[case]
    (tmp_path / "in.jsonl").write_text(content)
    code = run(monkeypatch, "predict", "-m", pruned.directory, "--input", tmp_path / "in.jsonl", "-o", tmp_path / "o")
    assert code == 1 and hint in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_predict_refuses_outputs_it_cannot_write_before_any_work(pruned, tmp_path, monkeypatch, capsys) -> None:
    for output in (tmp_path, tmp_path / "nowhere" / "o.jsonl", pruned.directory / "sets.json"):
        assert run(monkeypatch, "predict", "-m", pruned.directory, "--input", __file__, "-o", output) == 2
        assert "output" in capsys.readouterr().err
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\n")
    assert run(monkeypatch, "predict", "-m", pruned.directory, "--input", tmp_path / "binary") == 1
    assert "line 1" in capsys.readouterr().err


def test_calibrate_leaves_the_prompt_to_the_contract(pruned, pool_file, tmp_path, monkeypatch, capsys) -> None:
    given = ["-m", pruned.directory, "--dataset", pool_file, "--prompt", "X {text}:", "-o", tmp_path / "new"]
    assert run(monkeypatch, "calibrate", *given) == 2
    assert "prompt" in capsys.readouterr().err


def test_evaluate_says_where_the_test_rows_should_be(served_copy, monkeypatch, capsys) -> None:
    from dataclasses import replace

    from optimum_cpp import ReliabilityContract
    from optimum_cpp.contract.canonical import digest

    path = served_copy / "split_manifest.json"
    manifest = json.loads(path.read_text())
    manifest["dataset"]["id"] = "in-memory"
    path.write_text(json.dumps(manifest))
    contract = ReliabilityContract.load(served_copy)
    replace(contract, claims=replace(contract.claims, manifest_digest=digest(manifest))).save(served_copy)
    assert run(monkeypatch, "evaluate", "-m", served_copy) == 1
    assert "in-memory" in capsys.readouterr().err


def test_a_broken_contract_exits_with_1(served_copy: Path, monkeypatch, capsys) -> None:
    (served_copy / "config.json").write_text((served_copy / "config.json").read_text() + " ")
    assert run(monkeypatch, "predict", "-m", served_copy, "--input", __file__) == 1
    assert "config.json" in capsys.readouterr().err


def test_every_flag_is_explained(monkeypatch, capsys) -> None:
    for command in ("prune", "evaluate", "predict", "calibrate", "quickstart"):
        assert run(monkeypatch, command, "--help") == 0
        text = capsys.readouterr().out
        assert "example:" in text and "--json" in text


def test_optimum_cli_starts_without_torch() -> None:
    code = "import sys; import optimum_cpp.commands.cpp; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    code = "import sys, optimum_cpp; optimum_cpp.CPPConfig(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_monitor_says_what_it_compared_and_exits_with_1_on_an_alarm(
    tmp_path: Path, monkeypatch, capsys, pruned: CPPResult
) -> None:
    recent, changed = tmp_path / "recent.jsonl", tmp_path / "changed.jsonl"
    rows = labelled_rows(60, seed=78)
    rows.to_json(recent)
    wrong = pruned.model.scores(rows["text"]).argmax(1)
    labels = [LABELS[column] for column in wrong]
    rows.remove_columns("label").add_column("label", labels).to_json(changed)
    given = ["monitor", "-m", pruned.directory, "--input"]
    assert run(monkeypatch, *given, recent) == 0
    assert "No drift found" in capsys.readouterr().out
    assert run(monkeypatch, *given, changed, "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed["alarm"] and {test["name"] for test in printed["tests"]} >= {"scores", "coverage"}
    assert run(monkeypatch, *given, recent, "--label_column", "topic") == 1
    assert "topic" in capsys.readouterr().err
    assert run(monkeypatch, *given, tmp_path / "none.jsonl") == 2


def test_a_signed_calibration_is_verified_by_its_public_key(
    tmp_path: Path, monkeypatch, capsys, pruned: CPPResult
) -> None:
    private, public = write_pair(tmp_path, "author")
    labelled_rows(150, seed=79).to_json(tmp_path / "fresh.jsonl")
    given = ["-m", pruned.directory, "--dataset", tmp_path / "fresh.jsonl", "--conformal_rows", "100"]
    assert run(monkeypatch, "calibrate", *given, "-o", tmp_path / "out", "--sign", private) == 0
    capsys.readouterr()
    assert run(monkeypatch, "verify", "-m", tmp_path / "out", "--public_key", public) == 0
    assert "holds  signature" in capsys.readouterr().out
    _, stranger = write_pair(tmp_path, "stranger")
    assert run(monkeypatch, "verify", "-m", tmp_path / "out", "--public_key", stranger) == 1
    assert "MOVED  signature" in capsys.readouterr().out
    assert run(monkeypatch, "verify", "-m", pruned.directory, "--public_key", public) == 2
