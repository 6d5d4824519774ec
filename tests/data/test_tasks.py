"""Tasks: rendering, words, the choice of a preset, and verbalizer files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimum_cpp.data.tasks import ClassificationTask, as_words, encoder_task, resolve_task
from optimum_cpp.errors import DataError, UsageError

AG_NEWS = ("World", "Sports", "Business", "Sci/Tech")
TREC = ("ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM")


def resolve(**changes: Any) -> tuple[ClassificationTask, str]:
    arguments: dict[str, Any] = {
        "task": None,
        "dataset": None,
        "label_names": ("cat", "dog"),
        "prompt": None,
        "verbalizers": None,
    }
    return resolve_task(**arguments | changes)


def test_render_fills_text_and_labels() -> None:
    task = ClassificationTask("pets", ("c", "d"), (" cat", " dog"), "Choose of {labels}.\n{text}\nOne of {labels}:")
    assert task.render("It purrs.") == "Choose of cat, dog.\nIt purrs.\nOne of cat, dog:"
    assert task.render_parts() == ("Choose of cat, dog.\n", "\nOne of cat, dog:")


@pytest.mark.parametrize("text", ["{labels}", "{text}", "{}", "{0}", "a } b {", "{text} {labels}"])
def test_braces_in_a_text_are_left_alone(text: str) -> None:
    task = ClassificationTask("pets", ("c", "d"), (" cat", " dog"), "{labels}: {text}!")
    assert task.render(text) == f"cat, dog: {text}!"


def test_labels_that_look_like_placeholders_are_left_alone() -> None:
    task = ClassificationTask("odd", ("c", "d"), (" {text}", " {labels}"), "{labels}: {text}")
    assert task.render("x") == "{text}, {labels}: x"


@settings(deadline=None)
@given(st.text())
def test_render_is_the_text_between_its_parts(text: str) -> None:
    task = ClassificationTask("pets", ("c", "d"), (" cat", " dog"), "Q: {text}\nA:")
    before, after = task.render_parts()
    assert task.render(text) == before + text + after == f"Q: {text}\nA:"


@pytest.mark.parametrize("prompt", ["no place", "", "{ text }", "{text} and {text}"])
def test_a_prompt_holds_the_text_exactly_once(prompt: str) -> None:
    with pytest.raises(UsageError, match=r"prompt.*\{text\} exactly once"):
        resolve(prompt=prompt)
    with pytest.raises(UsageError, match=r"prompt.*\{text\} exactly once"):
        encoder_task(label_names=("a", "b"), prompt=prompt)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MeanOfTransportation", "mean of transportation"),
        ("card_arrival", "card arrival"),
        ("Refund_not_showing_up", "refund not showing up"),
        ("reverted_card_payment?", "reverted card payment?"),
        ("rollover_401k", "rollover 401k"),
        ("Sci/Tech", "sci/tech"),
        ("ABBR", "abbr"),
        ("HTTPServer", "http server"),
        ("  Health   Care ", "health care"),
        ("w2", "w2"),
    ],
)
def test_label_names_as_words(name: str, words: str) -> None:
    assert as_words(name) == words


def test_an_explicit_task_is_taken() -> None:
    task, sentence = resolve(task="trec", label_names=TREC)
    assert task.name == "trec" and task.labels == TREC
    assert task.prompt == "Q: {text}\nCategory:"
    assert task.verbalizers == (" abbreviation", " entity", " description", " human", " location", " numeric")
    assert sentence.startswith("Task trec, as given: prompt 'Q: {text}\\nCategory:'")


@pytest.mark.parametrize(
    "dataset",
    ["SetFit/ag_news", "fancyzhx/ag_news", "ag_news", "some/where/ag_news/", "AG-News", "files\\ag_news.csv"],
)
def test_the_data_sets_name_selects_a_preset(dataset: str) -> None:
    task, sentence = resolve(dataset=dataset, label_names=AG_NEWS)
    assert task.name == "ag_news"
    assert task.labels == AG_NEWS, "the labels stay the data's own"
    assert task.verbalizers == (" world", " sports", " business", " technology")
    assert "after the data set's name" in sentence and repr(dataset) in sentence


def test_verbalizers_follow_the_order_of_the_data() -> None:
    task, _ = resolve(dataset="ag_news", label_names=("Technology", "Business", "World", "Sports"))
    assert task.verbalizers == (" technology", " business", " world", " sports")


def test_names_are_the_papers_own() -> None:
    task, sentence = resolve(dataset="ag_news", label_names=AG_NEWS, verbalizers="names")
    assert task.verbalizers == (" World", " Sports", " Business", " Technology")
    assert "label names" in sentence


def test_labels_that_a_preset_does_not_know_lead_to_the_general_prompt() -> None:
    task, sentence = resolve(dataset="clinc/clinc_oos", label_names=("book_flight", "oos"))
    assert task.name == "custom" and task.prompt == "{text}\nCategory:"
    assert task.verbalizers == (" book flight", " oos")
    assert "clinc150" in sentence and "no label 'oos'" in sentence


def test_without_a_preset_the_label_names_are_used_as_words() -> None:
    task, sentence = resolve(dataset="me/tickets", label_names=("LateDelivery", "damaged_goods"))
    assert task.verbalizers == (" late delivery", " damaged goods")
    assert task.prompt == "{text}\nCategory:"
    assert sentence.startswith("No task was given")


def test_a_given_prompt_keeps_the_presets_verbalizers() -> None:
    task, sentence = resolve(dataset="ag_news", label_names=AG_NEWS, prompt="{text} is about")
    assert task.prompt == "{text} is about"
    assert task.verbalizers[3] == " technology"
    assert "the given prompt '{text} is about'" in sentence


def test_an_unknown_task_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"one of ag_news.*'dbpedia'; did you mean 'dbpedia_14'\?"):
        resolve(task="dbpedia")
    with pytest.raises(UsageError, match=r"but got 'qqqq'\.$"):
        resolve(task="qqqq")


def test_a_task_refuses_labels_that_it_does_not_have() -> None:
    with pytest.raises(DataError, match="Task clinc150 has no label 'oos'"):
        resolve(task="clinc150", label_names=("book_flight", "oos"))


def test_two_labels_with_the_same_words_are_refused() -> None:
    with pytest.raises(DataError, match="'card_arrival' and 'CardArrival' share ' card arrival'"):
        resolve(label_names=("card_arrival", "CardArrival"))
    task, _ = resolve(label_names=("card_arrival", "CardArrival"), verbalizers="names")
    assert task.verbalizers == (" card_arrival", " CardArrival")


def test_a_label_without_words_is_refused() -> None:
    with pytest.raises(DataError, match=r"label '__' .* empty"):
        resolve(label_names=("__", "dog"))


def test_an_encoder_has_labels_and_no_verbalizers() -> None:
    task, sentence = encoder_task(label_names=("a", "b"), prompt=None)
    assert task.verbalizers == () and task.labels == ("a", "b") and task.render("x") == "x"
    assert "2 labels" in sentence
    task, _ = encoder_task(label_names=("a", "b"), prompt="{labels}: {text}")
    assert task.render("x") == "a, b: x"


def test_a_verbalizer_for_every_label() -> None:
    with pytest.raises(DataError, match="each of the 2 labels, but got 1"):
        ClassificationTask("pets", ("c", "d"), (" cat",), "{text}")


@pytest.mark.parametrize("name", ["words.json", "words.yaml", "words.yml"])
def test_a_verbalizer_file_maps_labels_to_words(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(json.dumps({"dog": " a dog ", "cat": "a cat"}), encoding="utf-8")
    task, sentence = resolve(verbalizers=str(path))
    assert task.verbalizers == (" a cat", " a dog")
    assert name in sentence


def test_yaml_scalars_are_kept_as_written(tmp_path: Path) -> None:
    path = tmp_path / "words.yaml"
    path.write_text("yes: no doubt\nno: yes\n1.0: 2\n", encoding="utf-8")
    task, _ = resolve(label_names=("yes", "no", "1.0"), verbalizers=str(path))
    assert task.verbalizers == (" no doubt", " yes", " 2")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", '{"cat": "x"}', "'dog' is missing"),
        ("a.json", '{"cat": "x", "dog": "y", "cow": "z"}', "'cow' is not one"),
        ("a.json", '{"cat": "x", "dog": " "}', "label 'dog' to hold words, but it is empty"),
        ("a.json", '{"cat": "x", "dog": " x"}', "'cat' and 'dog' share ' x'"),
        ("a.json", '{"cat": "x", "cat": "y", "dog": "z"}', "'cat' stands there twice"),
        ("a.yaml", "cat: x\ncat: y\ndog: z\n", "'cat' stands there twice"),
    ],
)
def test_verbalizers_that_do_not_fit_the_labels(tmp_path: Path, name: str, content: str, expected: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=expected):
        resolve(verbalizers=str(path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", "{"),
        ("a.json", '["cat"]'),
        ("a.json", '"cat"'),
        ("a.json", '{"cat": 1, "dog": "x"}'),
        ("a.json", '{"cat": {"dog": "x"}}'),
        ("a.yaml", "- cat\n"),
        ("a.yaml", "cat: [x]\ndog: y\n"),
        ("a.yaml", "cat: {: }: x"),
        ("a.yaml", ""),
    ],
)
def test_files_that_are_not_a_mapping_of_words(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match="does not map label names to words"):
        resolve(verbalizers=str(path))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.json' cannot be read \(No such file"):
        resolve(verbalizers=str(tmp_path / "absent.json"))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        resolve(verbalizers=str(binary))
