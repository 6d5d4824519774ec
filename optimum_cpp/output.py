"""The files of an output folder beside the model: contract, manifest, recipe, card and report."""

from __future__ import annotations

import json
import os
from pathlib import Path

from .configuration import CPPConfig
from .contract import ReliabilityContract
from .contract.signing import sign_contract
from .data import SplitManifest
from .filenames import MANIFEST_NAME
from .model_card import render_model_card
from .report.figures import draw_figures
from .results import RunResults


def write_output(
    folder: Path,
    contract: ReliabilityContract,
    manifest: SplitManifest,
    config: CPPConfig,
    results: RunResults,
    name: str,
    sign: str | os.PathLike[str] | None = None,
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
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
