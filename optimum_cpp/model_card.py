"""The model card of an output folder: Hugging Face metadata, and what the prediction sets promise."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from .results import RunResults

if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCardData

TAGS = ("optimum-cpp", "pruning", "conformal-prediction", "calibration")
TEMPLATE = "model_card.md.jinja"

# Rows of the results table that stand for the model in this folder.
SERVED = ("chosen", "served")

ROLE_USES = {
    "prune": "saliency and activation statistics",
    "val_cal": "provisional quantiles, label prior and temperature",
    "val_eval": "one evaluation of each candidate",
    "conformal": "the final quantile, read after the model was frozen",
    "test": "evaluation only",
}
CAPTIONS = {
    "set_sizes": "Set sizes on the test rows",
    "lambda_grid": "Accuracy against mean set size on val_eval for each lambda",
    "coverage": "Coverage on the test rows with its acceptance band",
}

# Whatever stands between these marks is kept when the card is written again.
NOTES_BEGIN = "<!-- notes: kept when this card is written again -->\n"
NOTES_END = "<!-- end of notes -->"
DEFAULT_NOTES = "\n"

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", flags=re.ASCII)


def render_model_card(
    results: RunResults,
    *,
    repo_or_folder: str,
    kind: Literal["decoder", "encoder"],
    figures: Sequence[str],
    sizes: Mapping[str, int],
    notes: str = "",
) -> str:
    """The text of README.md: YAML metadata and Markdown.

    Names that come from data or models are shown as code, so that nothing in them can act as Markdown
    or YAML, and a name that is a local path is shown by its last component only.

    Args:
        results: the numbers of the run.
        repo_or_folder: Hub id or folder name of the model, as a reader would load it.
        kind: 'decoder' or 'encoder'.
        figures: paths of images relative to the card.
        sizes: number of rows by data role.
        notes: Markdown between the marks for notes, as `notes_of` found it in an earlier card.
    """
    import jinja2
    from huggingface_hub import ModelCard

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("optimum_cpp"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(code=code_span, text=plain_text)
    name = public_name(repo_or_folder)
    body = environment.get_template(TEMPLATE).render(
        results=results,
        name=name,
        source=json.dumps(name, ensure_ascii=False),
        kind=kind,
        model=public_name(results.model),
        dataset=public_name(results.dataset),
        target=f"{float(1 - Fraction(results.alpha)):g}",
        roles=[(role, rows, ROLE_USES[role]) for role, rows in sizes.items() if rows],
        notes=f"{NOTES_BEGIN}{notes or DEFAULT_NOTES}{NOTES_END}",
        figures=[(quote(path), CAPTIONS[PurePosixPath(path).stem]) for path in figures],
    )
    metadata = _metadata(results, name, kind).to_yaml()
    return str(ModelCard("---\n" + metadata + "\n---\n\n" + body))


def notes_of(card: str) -> str:
    """What somebody wrote between the marks for notes; empty where the marks or the notes are missing."""
    _, begin, rest = card.partition(NOTES_BEGIN)
    notes, end, _ = rest.partition(NOTES_END)
    return notes if begin and end and notes != DEFAULT_NOTES else ""


def address_card(card: str, name: str, repo_id: str) -> str:
    """A card that is headed by, and loads from, a repository in place of a folder."""
    before, begin, rest = card.partition(NOTES_BEGIN)
    notes, end, after = rest.partition(NOTES_END)
    old = public_name(name)
    for form in ("# {code}\n", "from_pretrained({source})", "-m {source}", "- name: {name}\n"):
        before, after = (text.replace(_in_form(form, old), _in_form(form, repo_id)) for text in (before, after))
    return before + begin + notes + end + after


def _in_form(form: str, name: str) -> str:
    return form.format(code=code_span(name), source=json.dumps(name, ensure_ascii=False), name=name)


def public_name(name: str) -> str:
    """A Hub id as it is; of a local path only the last component, which says nothing about a machine."""
    if is_hub_id(name):
        return name
    # Separate data sets for the roles are named together, joined by a plus.
    parts = [name] if os.path.exists(name) else name.split("+")
    last = [part if is_hub_id(part) else re.split(r"[/\\]", part.rstrip("/\\"))[-1] for part in parts]
    return _printable("+".join(last))


def is_hub_id(name: str) -> bool:
    """Whether the name has the form of an id on the Hub, and nothing local bears it."""
    return _HUB_ID.fullmatch(name) is not None and not os.path.exists(name)


def code_span(value: str) -> str:
    """Foreign text as inline code, in which Markdown and HTML have no effect."""
    text = _printable(value) or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def plain_text(value: str) -> str:
    """Text for a sentence or a table's cell, with every character that Markdown reads escaped."""
    return re.sub(r"[\\`*_\[\]<>|~$&!#]", r"\\\g<0>", _printable(value))


def _printable(value: str) -> str:
    """One line without control, formatting or other invisible characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())


def _metadata(results: RunResults, name: str, kind: str) -> ModelCardData:
    """The card's YAML block."""
    from huggingface_hub import ModelCardData

    evaluated = _evaluation(results)
    return ModelCardData(
        library_name="transformers",
        pipeline_tag="text-generation" if kind == "decoder" else "text-classification",
        tags=list(TAGS),
        base_model=results.model if is_hub_id(results.model) else None,
        datasets=[results.dataset] if is_hub_id(results.dataset) else None,
        model_name=name if evaluated else None,
        eval_results=evaluated or None,
    )


def _evaluation(results: RunResults) -> list[EvalResult]:
    """Coverage, set size, accuracy and ECE of the model in this folder, as plain floats."""
    from huggingface_hub import EvalResult

    counts = next((row.counts for row in results.test if row.model in SERVED), None)
    if counts is None:
        return []
    metrics = {
        ("coverage", f"Coverage of prediction sets (alpha = {results.alpha})"): counts.coverage,
        ("mean_set_size", "Mean size of prediction sets (labels)"): counts.mean_set_size,
        ("accuracy", "Accuracy"): counts.accuracy,
        ("ece", "Expected calibration error (15 bins)"): counts.ece,
    }
    dataset = public_name(results.dataset)
    return [
        EvalResult(
            task_type="text-classification",
            dataset_type=re.sub(r"[^\w./-]+", "-", dataset, flags=re.ASCII),
            dataset_name=dataset,
            metric_type=metric,
            metric_name=title,
            metric_value=float(value),
        )
        for (metric, title), value in metrics.items()
    ]
