"""The generated corpus: repeatable, free of duplicates, and ambiguous to the right degree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from optimum_cpp.data import folded, load_pool
from optimum_cpp.errors import UsageError
from optimum_cpp.quickstart.corpus import GeneratedCorpus, generate_corpus, write_corpus


@pytest.fixture(scope="module")
def corpus() -> GeneratedCorpus:
    return generate_corpus(8000, seed=3)


def test_the_seed_decides_everything() -> None:
    assert generate_corpus(50, seed=1) == generate_corpus(50, seed=1)
    assert generate_corpus(50, seed=1).texts != generate_corpus(50, seed=2).texts


def test_a_longer_corpus_starts_with_the_shorter_one(corpus: GeneratedCorpus) -> None:
    assert generate_corpus(40, seed=3) == corpus.rows(0, 40)


def test_every_class_is_common_and_named_in_loading_order(corpus: GeneratedCorpus) -> None:
    assert len(corpus.label_names) >= 12
    assert list(corpus.label_names) == sorted(set(corpus.label_names))
    assert np.bincount(corpus.labels, minlength=len(corpus.label_names)).min() > 400


def test_some_labels_share_their_first_word(corpus: GeneratedCorpus) -> None:
    first_words = [name.split()[0] for name in corpus.label_names]
    assert 1 < len(set(first_words)) < len(first_words)
    assert len({len(name.split()) for name in corpus.label_names}) > 1


def test_texts_are_distinct_and_of_8_to_30_words(corpus: GeneratedCorpus) -> None:
    assert len({folded(text) for text in corpus.texts}) == len(corpus) == 8000
    lengths = [len(text.split()) for text in corpus.texts]
    assert min(lengths) >= 8 and max(lengths) <= 30


def test_texts_are_ambiguous_but_not_hopeless(corpus: GeneratedCorpus) -> None:
    """A naive Bayes classifier, close to the best there is for texts of independent words."""
    log_joint = naive_bayes(corpus, train_rows=6000)
    labels = np.array(corpus.labels[6000:])
    ranks = (log_joint > log_joint[np.arange(len(labels)), labels, None]).sum(axis=1)
    assert 0.6 < np.mean(ranks < 1) < 0.75
    assert np.mean(ranks < 2) > np.mean(ranks < 1) + 0.1


def test_its_90_percent_sets_hold_more_than_one_label(corpus: GeneratedCorpus) -> None:
    log_joint = naive_bayes(corpus, train_rows=6000)
    scores = np.logaddexp.reduce(log_joint, axis=1, keepdims=True) - log_joint
    true_scores = scores[np.arange(1000), corpus.labels[6000:7000]]
    quantile = np.sort(true_scores)[901 - 1]  # ceil(1001 * .9) = 901
    assert 1.5 < (scores[1000:] <= quantile).sum(axis=1).mean() < 3.5


def test_the_file_opens_again_as_a_pool(corpus: GeneratedCorpus, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "pool.jsonl"
    write_corpus(corpus.rows(0, 300), path)
    pool = load_pool(path)
    assert pool.texts == corpus.texts[:300]
    assert pool.labels == corpus.labels[:300]
    assert pool.label_names == corpus.label_names
    first = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert first == {"text": corpus.texts[0], "label": corpus.names()[0]}


def test_no_rows_is_an_error() -> None:
    with pytest.raises(UsageError, match="`rows`"):
        generate_corpus(0, seed=0)


def naive_bayes(corpus: GeneratedCorpus, train_rows: int) -> np.ndarray:
    """log p(label, words) of the rows after `train_rows` up to a constant per row, in float64."""
    texts = [re.findall(r"[a-z]+", text.casefold()) for text in corpus.texts]
    words = {word: i for i, word in enumerate(sorted({word for text in texts for word in text}))}
    counts = np.zeros((len(texts), len(words)))
    for row, text in enumerate(texts):
        np.add.at(counts[row], [words[word] for word in text], 1)
    one_hot = np.eye(len(corpus.label_names))[np.array(corpus.labels[:train_rows])]
    by_label = one_hot.T @ counts[:train_rows] + 0.1  # (K, words)
    log_words = np.log(by_label / by_label.sum(axis=1, keepdims=True))
    return counts[train_rows:] @ log_words.T + np.log(one_hot.mean(axis=0))
