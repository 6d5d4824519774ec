"""The files of an output folder beside the model: contract, manifest, recipe, card and report."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path

from .configuration import CPPConfig
from .contract import ReliabilityContract
from .contract.signing import sign_contract
from .data import SplitManifest
from .filenames import CARD_NAME, HANDLER_NAME, MANIFEST_NAME, REQUIREMENTS_NAME
from .model_card import notes_of, render_model_card
from .report.figures import draw_figures
from .results import RunResults

# Inference Endpoints import this file and install the requirements beside it; loading reads neither.
_HANDLER = '''"""Serves prediction sets: EndpointHandler(folder)({"inputs": "Some text"})."""

from optimum_cpp.serving import EndpointHandler

__all__ = ["EndpointHandler"]
'''


def write_output(
    folder: Path,
    contract: ReliabilityContract,
    manifest: SplitManifest,
    config: CPPConfig,
    results: RunResults,
    name: str,
    *,
    sign: str | os.PathLike[str] | None = None,
    notes: str = "",
) -> None:
    """Write everything that stands beside the model; the model card comes last.

    Args:
        folder: where the frozen model already is.
        contract: its contract.
        manifest: the split manifest whose digest the contract holds.
        config: the recipe.
        results: the numbers of the run.
        name: the folder's final name, as the card shows it.
        sign: private key with which the contract is signed.
        notes: what somebody wrote into an earlier card.
    """
    contract.save(folder)
    if sign is not None:
        sign_contract(folder, sign)
    manifest.save(folder / MANIFEST_NAME)
    config.save_pretrained(folder)
    report = folder / "report"
    report.mkdir()
    figures = draw_figures(results, report)
    (report / "results.json").write_text(json.dumps(results.to_dict(), indent=2) + "\n", encoding="utf-8")
    (report / "results.csv").write_text(results.to_csv(), encoding="utf-8")
    card = render_model_card(
        results,
        repo_or_folder=name,
        kind="decoder" if contract.claims.task.kind == "decoder" else "encoder",
        figures=[f"report/{figure.name}" for figure in figures],
        sizes={role: len(rows) for role, rows in manifest.roles.items()},
        notes=notes,
    )
    (folder / HANDLER_NAME).write_text(_HANDLER, encoding="utf-8")
    (folder / REQUIREMENTS_NAME).write_text(f"optimum-cpp=={version('optimum-cpp')}\n", encoding="utf-8")
    (folder / CARD_NAME).write_text(card, encoding="utf-8")


def earlier_notes(*folders: Path) -> str:
    """The notes in the first card that has any."""
    cards = [folder / CARD_NAME for folder in folders]
    found = (notes_of(card.read_text(encoding="utf-8", errors="replace")) for card in cards if card.is_file())
    return next((notes for notes in found if notes), "")
