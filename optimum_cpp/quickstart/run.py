"""The quickstart: make a corpus and a model, then run the real pipeline on them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from ..configuration import CPPConfig
from ..modeling import CPPResult
from ..pruner import CPPPruner
from ..staging import check_output
from .assets import make_quickstart_assets

logger = logging.getLogger(__name__)

SPARSITY = "0.6"


def run_quickstart(output: str | os.PathLike[str], *, fast: bool, seed: int, overwrite: bool) -> tuple[CPPResult, str]:
    """Base Wanda against CPP-Wanda at 60 % sparsity on a model trained here; no network is used.

    The dense model and the rows stay in `<output>-data` beside the output folder, so that the next
    commands have something to work on.

    Returns:
        The result, and a text that says what was done, what came out and what to try next.
    """
    folder = check_output(output, overwrite=overwrite)
    data = folder.with_name(folder.name + "-data")
    logger.info("Making a corpus of ambiguous texts and training a small language model on it ...")
    assets = make_quickstart_assets(data, fast=fast, seed=seed)
    config = CPPConfig(
        dataset=str(assets.pool_path),
        prompt=assets.prompt,
        base_pruner="wanda",
        sparsity=SPARSITY,
        prune_rows=assets.size.prune_rows,
        val_rows=assets.size.val_rows,
        conformal_rows=assets.size.conformal_rows,
        test_rows=str(assets.size.test_rows),
        seed=seed,
    )
    pruner = CPPPruner.from_pretrained(assets.model_directory)
    result = pruner.prune(config=config, save_directory=folder, overwrite=overwrite, training_texts=assets.train_texts)
    return result, _describe(result, data, config)


def _describe(result: CPPResult, data: Path, config: CPPConfig) -> str:
    folder = result.directory
    example = f'echo "{result.model.labels[0]} or {result.model.labels[1]}?" | optimum-cli cpp predict -m {folder}'
    return "\n".join(
        [
            f"A language model was trained on {len(result.model.labels)} classes of ambiguous texts ({data}),",
            f"pruned by Wanda and by CPP-Wanda at {config.sparsity} sparsity, selected, frozen and calibrated.",
            "",
            result.results.summary(),
            "",
            f"The model, its contract, its card and figures are in {folder}.",
            f"contract {result.contract.digest}",
            "",
            "Next:",
            f"  {example}",
            f"  optimum-cli cpp evaluate -m {folder}",
            "  optimum-cli cpp prune --help",
        ]
    )
