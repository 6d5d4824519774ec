"""What a classifier is asked: the prompt around the text, and the words that stand for each label."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError, UsageError
from .presets import CATEGORY_PROMPT, PRESETS, Preset

_TEXT = "{text}"
_LABELS = "{labels}"


@dataclass(frozen=True)
class ClassificationTask:
    """Prompt, label space and verbalizers of one task.

    `labels` are the data's label names in the order of its label space; `verbalizers[k]` is the text,
    with its leading space, that a decoder is scored on for `labels[k]` (empty for an encoder). `prompt`
    holds `{text}` once, and may hold `{labels}`, which lists the verbalizers (an encoder's labels).

    Raises:
        UsageError: a prompt without `{text}`, or with it more than once.
        DataError: not one verbalizer for each label, an empty one, or one that two labels share.
    """

    name: str
    labels: tuple[str, ...]
    verbalizers: tuple[str, ...]
    prompt: str

    def __post_init__(self) -> None:
        """Refuse a prompt or verbalizers that cannot be scored."""
        if self.prompt.count(_TEXT) != 1:
            raise UsageError(f"Expected argument `prompt` to hold {_TEXT} exactly once, but got {self.prompt!r}.")
        if not self.verbalizers:
            return
        if len(self.verbalizers) != len(self.labels):
            raise DataError(
                f"Expected a verbalizer for each of the {len(self.labels)} labels, but got {len(self.verbalizers)}."
            )
        owner: dict[str, str] = {}
        for label, verbalizer in zip(self.labels, self.verbalizers, strict=True):
            if not verbalizer.strip():
                raise DataError(f"Expected the verbalizer of label {label!r} to hold words, but it is empty.")
            if verbalizer in owner:
                raise DataError(
                    f"Expected each label to have its own verbalizer, but {owner[verbalizer]!r} and "
                    f"{label!r} share {verbalizer!r}; give a file of verbalizers that tells them apart."
                )
            owner[verbalizer] = label

    def render_parts(self) -> tuple[str, str]:
        """What stands before and after the text, with `{labels}` filled in."""
        listed = ", ".join(entry.strip() for entry in self.verbalizers or self.labels)
        before, after = self.prompt.split(_TEXT)
        return before.replace(_LABELS, listed), after.replace(_LABELS, listed)

    def render(self, text: str) -> str:
        """The prompt of one text; braces in the text stay as they are."""
        before, after = self.render_parts()
        return before + text + after


def as_words(name: str) -> str:
    """A label name as lower-case words: `MeanOfTransportation` -> `mean of transportation`,
    `card_arrival` -> `card arrival`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name.replace("_", " "))
    return " ".join(spaced.lower().split())


def resolve_task(
    *,
    task: str | None,
    dataset: str | None,
    label_names: Sequence[str],
    prompt: str | None,
    verbalizers: str | None,
) -> tuple[ClassificationTask, str]:
    """A decoder's task, and a sentence that says which was chosen and why.

    The preset `task` if given; else the preset that `dataset` (an id, folder or file) is named after,
    if it knows all of `label_names`; else `"{text}\\nCategory:"` with the label names themselves.
    `prompt` replaces the chosen prompt. `verbalizers` is `"words"` (the default), `"names"`, or a JSON
    or YAML file that maps each label name to its words.

    Raises:
        UsageError: an unknown task, a prompt without `{text}`, a verbalizer file that cannot be read.
        DataError: labels that `task` does not know, or verbalizers that do not fit the labels.
    """
    name, reason = _choose(task, dataset, label_names)
    preset = PRESETS.get(name)
    known = _match_labels(preset, label_names) if preset else tuple(label_names)
    chosen = ClassificationTask(
        name=name,
        labels=tuple(label_names),
        verbalizers=_verbalizers(verbalizers, label_names, known),
        prompt=prompt if prompt is not None else preset.prompt if preset else CATEGORY_PROMPT,
    )
    source = "the given prompt" if prompt is not None else "prompt"
    wording = "label names" if verbalizers == "names" else verbalizers or "words"
    example = chosen.verbalizers[0]
    return chosen, f"{reason}: {source} {chosen.prompt!r}, verbalizers from {wording} (such as {example!r})."


def encoder_task(*, label_names: Sequence[str], prompt: str | None) -> tuple[ClassificationTask, str]:
    """An encoder's task, which has labels but no verbalizers, and a sentence that says so.

    Raises:
        UsageError: a prompt without `{text}`.
    """
    chosen = ClassificationTask("custom", tuple(label_names), (), prompt if prompt is not None else _TEXT)
    return chosen, f"Classification head over {len(label_names)} labels: prompt {chosen.prompt!r}."


def _choose(task: str | None, dataset: str | None, label_names: Sequence[str]) -> tuple[str, str]:
    """Name of the preset ("custom" for none), and the start of the sentence."""
    if task is not None:
        if task not in PRESETS:
            near = difflib.get_close_matches(task.lower(), PRESETS, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise UsageError(f"Expected argument `task` to be one of {', '.join(PRESETS)}, but got {task!r}{hint}")
        unknown = _unknown_labels(PRESETS[task], label_names)
        if unknown:
            raise DataError(
                f"Task {task} has no label {unknown[0]!r}, which the data names; drop that label's rows, "
                "or leave `task` out and give `prompt` and `verbalizers`."
            )
        return task, f"Task {task}, as given"
    named = _preset_named_after(dataset)
    if named is None:
        return "custom", "No task was given and the data set's name selects none"
    unknown = _unknown_labels(PRESETS[named], label_names)
    if unknown:
        return (
            "custom",
            f"No task, because {named}, which the data set is named after, has no label {unknown[0]!r}",
        )
    return named, f"Task {named}, after the data set's name {dataset!r}"


def _preset_named_after(dataset: str | None) -> str | None:
    last = re.split(r"[/\\]", (dataset or "").rstrip("/\\"))[-1]
    key = _plain(re.sub(r"\.(csv|tsv|jsonl?|parquet)$", "", last.lower()))
    for name, preset in PRESETS.items():
        if key in {_plain(entry) for entry in preset.datasets}:
            return name
    return None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name)


def _own_names(preset: Preset) -> dict[str, str]:
    """As words -> the preset's own label name, for its names and their aliases."""
    spellings = {as_words(alias): label for alias, label in preset.aliases.items()}
    return spellings | {as_words(label): label for label in preset.labels}


def _unknown_labels(preset: Preset, label_names: Sequence[str]) -> list[str]:
    known = _own_names(preset)
    return [name for name in label_names if as_words(name) not in known]


def _match_labels(preset: Preset, label_names: Sequence[str]) -> tuple[str, ...]:
    """The preset's own name for each of the data's labels, all of which it knows."""
    known = _own_names(preset)
    return tuple(known[as_words(name)] for name in label_names)


def _verbalizers(source: str | None, label_names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    if source is None or source == "words":
        return tuple(" " + as_words(name) for name in known)
    if source == "names":
        return tuple(" " + name.strip() for name in known)
    words = _read_verbalizers(Path(os.path.expanduser(source)))
    missing = [name for name in label_names if name not in words]
    unknown = [name for name in words if name not in set(label_names)]
    if missing:
        raise DataError(f"Expected {source} to hold words for every label, but {missing[0]!r} is missing.")
    if unknown:
        raise DataError(f"Expected {source} to name only labels of the data, but {unknown[0]!r} is not one.")
    return tuple(" " + words[name].strip() for name in label_names)


def _read_verbalizers(path: Path) -> Mapping[str, str]:
    """The file's label -> words. Scalars are kept as written: YAML would read the label `no` as false."""
    expected = f"Expected argument `verbalizers` to be 'words', 'names' or a JSON or YAML file, but {str(path)!r}"
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{expected} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{expected} is not UTF-8 text.") from error
    pairs = _json_pairs(content) if path.suffix.lower() == ".json" else _yaml_pairs(content)
    if pairs is None:
        raise UsageError(f"{expected} does not map label names to words.")
    words: dict[str, str] = {}
    for label, value in pairs:
        if label in words:
            raise DataError(f"Expected {path} to name each label once, but {label!r} stands there twice.")
        words[label] = value
    return words


def _json_pairs(content: str) -> list[tuple[str, str]] | None:
    try:
        # Objects become lists of pairs, so that a repeated label is seen; a JSON list has no tuples.
        pairs = json.loads(content, object_pairs_hook=lambda entries: entries)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        return None
    return pairs if all(isinstance(value, str) for _, value in pairs) else None


def _yaml_pairs(content: str) -> list[tuple[str, str]] | None:
    import yaml

    try:
        node = yaml.compose(content, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    if not isinstance(node, yaml.MappingNode):
        return None
    if not all(isinstance(part, yaml.ScalarNode) for pair in node.value for part in pair):
        return None
    return [(key.value, value.value) for key, value in node.value]
