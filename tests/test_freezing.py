from pathlib import Path

import numpy as np
import pytest
import torch

import optimum_cpp.freezing as freezing
from optimum_cpp.errors import ModelError
from optimum_cpp.freezing import freeze, score_noise, scorer_of
from optimum_cpp.loading import LoadedModel, load_model
from optimum_cpp.scoring import ScoreTransform
from tiny_models import TEXTS, task, tiny_model
from tiny_runs import small_config

TRANSFORM = ScoreTransform("nll")


def test_what_is_served_is_what_was_saved(dense_folder: Path, tmp_path: Path) -> None:
    loaded = load_model(dense_folder)
    frozen = freeze(loaded, task(), TRANSFORM, small_config(), [], tmp_path)
    assert frozen.classifier.scorer.model is not loaded.model
    expected = scorer_of(loaded, task(), small_config()).log_probabilities(TEXTS)
    np.testing.assert_array_equal(frozen.classifier.score(TEXTS).nonconformity, -expected)
    again = freeze(loaded, task(), TRANSFORM, small_config(), [], tmp_path)
    assert again.classifier.digest == frozen.classifier.digest


def test_every_frozen_part_is_in_the_digest(dense_folder: Path, tmp_path: Path) -> None:
    loaded = load_model(dense_folder)

    def digest(transform=TRANSFORM, given=None, **changes) -> str:
        return freeze(loaded, given or task(), transform, small_config(**changes), [], tmp_path).classifier.digest

    digests = [
        digest(),
        digest(ScoreTransform("label_nll")),
        digest(ScoreTransform("nll", temperature=2.0)),
        digest(given=task(prompt="{text}\nCategory:")),
        digest(max_text_tokens=9),
        digest(length_normalize=True),
        digest(allow_empty=False),
    ]
    loaded.model.lm_head.weight.data[0, 0] += 1
    digests.append(digest())
    assert len(set(digests)) == len(digests)


def test_a_checkpoint_that_does_not_come_back_is_refused(
    dense_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = LoadedModel(tiny_model("llama"), load_model(dense_folder).tokenizer, "decoder", "x", None)
    with torch.no_grad():
        other.model.lm_head.weight[0, 0] += 1
    monkeypatch.setattr(freezing, "load_model", lambda folder, device_map: other)
    with pytest.raises(ModelError, match="round trip"):
        freeze(load_model(dense_folder), task(), TRANSFORM, small_config(), [], tmp_path)


def test_noise_is_the_largest_difference_between_batch_and_single() -> None:
    class Scorer:
        def log_probabilities(self, texts, description=None):
            return np.array([[float(len(t)) + (0.25 if len(texts) > 1 and t == "bb" else 0)] for t in texts])

    assert score_noise(Scorer(), ["a", "bb", "ccc"]) == 0.25  # type: ignore[arg-type]
