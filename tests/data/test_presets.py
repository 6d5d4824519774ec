"""Presets: the paper's labels in the paper's order, each resolvable under every spelling."""

from __future__ import annotations

import pytest

from optimum_cpp.data.presets import PRESETS
from optimum_cpp.data.tasks import as_words, resolve_task

TASKS = tuple(PRESETS)


def test_the_five_data_sets_of_the_paper() -> None:
    assert {name: len(preset.labels) for name, preset in PRESETS.items()} == {
        "ag_news": 4,
        "trec": 6,
        "dbpedia_14": 14,
        "banking77": 77,
        "clinc150": 150,
    }


def test_labels_in_the_papers_order() -> None:
    assert PRESETS["ag_news"].labels == ("World", "Sports", "Business", "Technology")
    assert PRESETS["trec"].labels == ("Abbreviation", "Entity", "Description", "Human", "Location", "Numeric")
    assert " ".join(PRESETS["dbpedia_14"].labels) == (
        "Company EducationalInstitution Artist Athlete OfficeHolder MeanOfTransportation Building "
        "NaturalPlace Village Animal Plant Album Film WrittenWork"
    )


@pytest.mark.parametrize("name", ["banking77", "clinc150"])
def test_intents_are_in_lexical_order(name: str) -> None:
    assert list(PRESETS[name].labels) == sorted(PRESETS[name].labels)


@pytest.mark.parametrize("name", TASKS)
def test_words_tell_the_labels_apart(name: str) -> None:
    labels = PRESETS[name].labels
    assert len({as_words(label) for label in labels}) == len(labels)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("verbalizers", ["words", "names"])
def test_every_preset_resolves_by_name_and_by_data_set(name: str, verbalizers: str) -> None:
    preset = PRESETS[name]
    for task, dataset in ((name, None), (None, f"owner/{preset.datasets[0]}")):
        found, _ = resolve_task(
            task=task, dataset=dataset, label_names=preset.labels, prompt=None, verbalizers=verbalizers
        )
        assert (found.name, found.labels, found.prompt) == (name, preset.labels, preset.prompt)
        spelled = preset.labels if verbalizers == "names" else map(as_words, preset.labels)
        assert found.verbalizers == tuple(" " + entry for entry in spelled)


@pytest.mark.parametrize("name", TASKS)
def test_aliases_lead_to_labels_of_the_preset(name: str) -> None:
    preset = PRESETS[name]
    assert set(preset.aliases.values()) <= set(preset.labels)
    for alias, label in preset.aliases.items():
        others = [entry for entry in preset.labels if entry != label]
        found, _ = resolve_task(task=name, dataset=None, label_names=[alias, *others], prompt=None, verbalizers="names")
        assert found.verbalizers[0] == f" {label}"
