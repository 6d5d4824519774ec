"""The files that the quickstart's pipeline starts from."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from optimum_cpp.data import fingerprint, load_pool
from optimum_cpp.quickstart import assets
from optimum_cpp.quickstart.assets import FAST, NORMAL, QuickstartAssets, QuickstartSize, make_quickstart_assets


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> QuickstartAssets:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assets, "FAST", dataclasses.replace(FAST, train_rows=320, steps=4))
        return make_quickstart_assets(tmp_path_factory.mktemp("quickstart"), fast=True, seed=2)


def test_the_pool_holds_the_roles_and_no_training_row(made: QuickstartAssets) -> None:
    pool = load_pool(made.pool_path)
    assert len(pool) == made.size.prune_rows + made.size.val_rows + made.size.conformal_rows + made.size.test_rows
    assert pool.label_names == made.label_names
    trained = {fingerprint(text, label) for text, label in zip(made.train_texts, made.train_labels, strict=True)}
    assert len(trained) == 320
    assert trained.isdisjoint(pool.fingerprint(row) for row in range(len(pool)))
    assert set(made.train_texts).isdisjoint(pool.texts)


def test_the_dense_model_opens_again(made: QuickstartAssets) -> None:
    tokenizer = AutoTokenizer.from_pretrained(made.model_directory)
    model = AutoModelForCausalLM.from_pretrained(made.model_directory)
    assert model.dtype == torch.float32
    inputs = tokenizer(
        [made.prompt.replace("{text}", text) for text in made.train_texts[:3]], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
    assert logits.shape[-1] == len(tokenizer) and torch.isfinite(logits).all()


def test_the_prompt_has_a_place_for_the_text(made: QuickstartAssets) -> None:
    assert made.prompt.count("{text}") == 1 and made.prompt == made.prompt.rstrip()


@pytest.mark.parametrize("size", [NORMAL, FAST])
def test_roles_are_large_enough_for_90_percent_sets(size: QuickstartSize) -> None:
    assert size.val_rows % 2 == 0 and size.val_rows // 2 >= 9 and size.conformal_rows >= 9
