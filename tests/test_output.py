"""What stands beside the model, and what survives when it is written again."""

from __future__ import annotations

import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from optimum_cpp import CPPPruner, recalibrate
from optimum_cpp.model_card import NOTES_BEGIN, NOTES_END, address_card, notes_of
from optimum_cpp.modeling import CPPResult
from optimum_cpp.output import earlier_notes
from tiny_runs import labelled_rows, small_config

NOTES = "## Where we use it\n\nIn triage. Ask `me@example.org`.\n"


def with_notes(folder: Path) -> Path:
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert notes_of(card) == ""
    before, _, rest = card.partition(NOTES_BEGIN)
    _, _, after = rest.partition(NOTES_END)
    (folder / "README.md").write_text(before + NOTES_BEGIN + NOTES + NOTES_END + after, encoding="utf-8")
    return folder


def test_the_files_of_an_output_folder(pruned: CPPResult) -> None:
    names = {path.name for path in pruned.directory.iterdir()}
    assert {"README.md", "handler.py", "requirements.txt", "cpp_config.json", "split_manifest.json"} <= names
    assert (pruned.directory / "requirements.txt").read_text() == f"optimum-cpp=={version('optimum-cpp')}\n"
    assert not names & {"requirements.txt", "handler.py"} & set(pruned.contract.claims.model.files)


def test_notes_survive_a_calibration_and_an_overwritten_output(
    served_copy: Path, dense_folder: Path, pool_file: Path, tmp_path: Path
) -> None:
    with_notes(served_copy)
    rows = labelled_rows(200, seed=57)
    fresh = recalibrate(served_copy, config=small_config(), dataset=rows, save_directory=tmp_path / "out2").directory
    assert notes_of((fresh / "README.md").read_text(encoding="utf-8")) == NOTES
    config = small_config(dataset=str(pool_file), base_pruner="magnitude", lambda_grid=("0",))
    CPPPruner.from_pretrained(dense_folder).prune(config=config, save_directory=served_copy, overwrite=True)
    card = (served_copy / "README.md").read_text(encoding="utf-8")
    assert notes_of(card) == NOTES and "magnitude" in card and card.count("Where we use it") == 1


@pytest.mark.parametrize("card", ["", "# mine", NOTES_BEGIN + "no end", NOTES_END + NOTES_BEGIN])
def test_cards_without_both_marks_have_no_notes(card: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(card)
    assert earlier_notes(tmp_path, tmp_path / "none") == ""


def test_a_card_is_addressed_without_touching_the_notes(pruned: CPPResult, tmp_path: Path) -> None:
    folder = with_notes(Path(shutil.copytree(pruned.directory, tmp_path / "out")))
    card = (folder / "README.md").read_text(encoding="utf-8")
    card = card.replace(NOTES, NOTES + 'model = X.from_pretrained("out")\n')
    found = address_card(card, "out", "me/name")
    assert 'from_pretrained("me/name")' in found and "# `me/name`\n" in found and "- name: me/name\n" in found
    assert notes_of(found) == notes_of(card)
