"""A generated text-classification corpus: small, English-like, and ambiguous on purpose.

Fourteen topics stand in a ring. Each has words of its own, shares some with the next topic ("pitch",
"coach", "bass", "reel"), and every text is diluted with everyday words and a few strays. Part of the
texts mix two topics and carry the label of one of them, so that no classifier can be right on all of
them and honest prediction sets must hold more than one label.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

from ..data.fingerprints import folded
from ..errors import UsageError

MIN_WORDS, MAX_WORDS = 8, 30

T = TypeVar("T")

_OWN, _SHARED, _STRAY = 0.40, 0.15, 0.08  # shares of the open slots of a text; the rest is everyday words
_MIXED = 0.55  # share of texts that mix two topics
_NEIGHBOUR = 0.75  # share of those whose second topic is drawn from the two beside the first; else from all others


@dataclass(frozen=True)
class _Topic:
    """The words of one topic, by the slot they fill; `shared` nouns belong to the next topic of the ring as well."""

    name: str
    words: dict[str, tuple[str, ...]]
    shared: tuple[str, ...]


def _topic(name: str, nouns: str, verbs: str, adjectives: str, shared: str) -> _Topic:
    slots = {"{noun}": nouns, "{verb}": verbs, "{adjective}": adjectives}
    return _Topic(name, {slot: tuple(words.split()) for slot, words in slots.items()}, tuple(shared.split()))


# fmt: off
_TOPICS = (
    _topic("river fishing", "trout pike bait angler float rod minnow net",
           "hooked landed baited netted", "muddy slippery patient silver", "bank current jetty reeds"),
    _topic("river boats", "barge canoe paddle rudder keel mast deck tiller",
           "rowed moored steered launched", "wooden leaky narrow drifting", "quay rope cargo crate"),
    _topic("harbour markets", "trader auction gull mussels bargain cart fishmonger coin",
           "priced sold unloaded weighed", "salty noisy fresh wholesale", "stall queue awning basket"),
    _topic("street food", "taco skewer noodle vendor wrapper grill pancake chilli",
           "grilled fried served wrapped", "spicy greasy smoky crispy", "pepper dough sauce onion"),
    _topic("home cooking", "stew oven recipe ladle pie casserole flour spoon",
           "baked stirred simmered tasted", "buttery creamy homemade warm", "kitchen sink kettle counter"),
    _topic("home repairs", "pipe plaster leak socket hinge tile drill paint",
           "patched painted replaced tightened", "rusty cracked loose damp", "hammer ladder shed bucket"),
    _topic("garden tools", "spade rake shears trowel wheelbarrow hose compost mower",
           "pruned dug raked watered", "sharp thorny overgrown sturdy", "hedge seed lawn fence"),
    _topic("garden birds", "robin sparrow wren blackbird feeder worm finch egg",
           "pecked fed startled sheltered", "feathered tiny chirping shy", "thicket meadow perch binoculars"),
    _topic("mountain walks", "boot rucksack hiker map cairn hut compass scree",
           "climbed crossed descended followed", "steep rocky breathless winding", "ridge slope summit valley"),
    _topic("mountain weather", "blizzard gale thunder forecast hail avalanche drizzle barometer",
           "soaked froze battered predicted", "icy stormy gusty misty", "cloud horizon frost dusk"),
    _topic("night sky watching", "comet telescope planet meteor galaxy eclipse constellation orbit",
           "observed charted glimpsed magnified", "bright distant starry lunar", "lantern midnight darkness signal"),
    _topic("night trains", "carriage sleeper conductor berth locomotive tunnel junction siding",
           "boarded delayed coupled rattled", "late rumbling overnight drowsy", "whistle coach ticket shelter"),
    _topic("village football", "goal keeper referee striker penalty jersey tackle trophy",
           "kicked scored tackled dribbled", "offside winning clumsy goalless", "crowd anthem pitch stand"),
    _topic("village music", "fiddle choir drum melody accordion violin chorus tune",
           "played sang tuned hummed", "rhythmic loud folk cheerful", "bass reel scale hook"),
)
_EVERYDAY = _topic(
    "", "friend family neighbour letter road table story plan week photograph visitor list question box "
    "coat hand window child group place door teacher", "found left watched carried wanted noticed brought "
    "remembered moved kept mentioned forgot", "old small quiet large usual new broken good simple heavy "
    "strange familiar", "")
# fmt: on
_OPENERS = ("Yesterday", "Last week", "As usual", "This morning", "Once again", "Later on", "In the end", "Today")
_PEOPLE = ("my sister", "our uncle", "somebody", "the twins", "an old friend", "everyone", "the owner", "nobody")
_JOINERS = (", and then", ", while", ", but", ", because", ", so")
_CLAUSES = (
    "{person} {verb} the {adjective} {noun}",
    "{person} {verb} a {noun} with the {noun}",
    "the {adjective} {noun} {verb} the {noun}",
    "{person} {verb} the {noun} and the {noun}",
    "every {noun} near the {adjective} {noun} was {adjective}",
    "the {noun} of the {noun} {verb} {person}",
    "there was a {adjective} {noun} and no {noun}",
    "{person} said that the {noun} was too {adjective}",
)


@dataclass(frozen=True)
class GeneratedCorpus:
    """Labelled texts.

    Attributes:
        texts: the texts, unique after folding (NFKC, casefold, single spaces).
        labels: for each text the index of its label in `label_names`.
        label_names: the labels, lower-case words in code-point order, as loading them from a file orders them.
    """

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    label_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self, start: int, stop: int) -> GeneratedCorpus:
        """The rows from `start` up to, not including, `stop`."""
        return GeneratedCorpus(self.texts[start:stop], self.labels[start:stop], self.label_names)

    def names(self) -> tuple[str, ...]:
        """The label of each text as a name."""
        return tuple(self.label_names[label] for label in self.labels)


def generate_corpus(rows: int, seed: int) -> GeneratedCorpus:
    """Generate `rows` labelled texts of 8 to 30 words; equal arguments give equal texts.

    Rows are independent draws, conditioned on being distinct, so any split of them is exchangeable.

    Raises:
        UsageError: `rows` is not above 0.
    """
    if rows < 1:
        raise UsageError(f"Expected argument `rows` to be a whole number above 0, but got {rows}.")
    names = tuple(sorted(topic.name for topic in _TOPICS))
    rng = Random(seed)
    texts: list[str] = []
    labels: list[int] = []
    seen: set[str] = set()
    while len(texts) < rows:
        text, topic = _draw_row(rng)
        key = folded(text)
        if key not in seen and MIN_WORDS <= len(text.split()) <= MAX_WORDS:
            seen.add(key)
            texts.append(text)
            labels.append(names.index(topic.name))
    return GeneratedCorpus(tuple(texts), tuple(labels), names)


def write_corpus(corpus: GeneratedCorpus, path: str | os.PathLike[str]) -> None:
    """Write a jsonl file with one `{"text": ..., "label": name}` a line; missing folders are made."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", newline="\n") as file:
        for text, label in zip(corpus.texts, corpus.names(), strict=True):
            file.write(json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n")


def _draw_row(rng: Random) -> tuple[str, _Topic]:
    """One text and its topic; that of a mixed text is drawn with the topics' shares in the text."""
    first = second = int(rng.random() * len(_TOPICS))
    share = 1.0
    if rng.random() < _MIXED:
        second = _other_topic(rng, first)
        share = 0.35 + 0.3 * rng.random()
    text = _write_text(rng, first, second, share)
    return text, _TOPICS[first if rng.random() < share else second]


def _other_topic(rng: Random, first: int) -> int:
    if rng.random() < _NEIGHBOUR:
        step = 1 if rng.random() < 0.5 else -1
    else:
        step = 1 + int(rng.random() * (len(_TOPICS) - 1))
    return (first + step) % len(_TOPICS)


def _write_text(rng: Random, first: int, second: int, share: float) -> str:
    """One to three clauses whose open slots are filled from both topics."""
    clauses = []
    for _ in range(1 + int(rng.random() * 3)):
        words = []
        for token in _pick(rng, _CLAUSES).split():
            if token == "{person}":
                words.append(_pick(rng, _PEOPLE))
            elif token.startswith("{"):
                words.append(_fill_slot(rng, token, first if rng.random() < share else second))
            else:
                words.append(token)
        clauses.append(" ".join(words))
    text = _pick(rng, _OPENERS) + " " + clauses[0]
    for clause in clauses[1:]:
        text += _pick(rng, _JOINERS) + " " + clause
    return text + "."


def _fill_slot(rng: Random, slot: str, topic: int) -> str:
    """A word for an open slot of a text about a topic."""
    draw = rng.random()
    if slot == "{noun}" and draw < _SHARED:
        return _pick(rng, _TOPICS[topic].shared + _TOPICS[topic - 1].shared)
    source = _EVERYDAY
    if draw < _SHARED + _OWN:
        source = _TOPICS[topic]
    elif draw < _SHARED + _OWN + _STRAY:
        source = _pick(rng, _TOPICS)
    return _pick(rng, source.words[slot])


def _pick(rng: Random, items: Sequence[T]) -> T:
    """One item at random; `random()` is the one generator method whose values Python keeps stable."""
    return items[int(rng.random() * len(items))]
