import hashlib

import numpy as np
import torch

from optimum_cpp.contract.describe import score_claim, task_claim, transform_of
from optimum_cpp.modeling import CPPResult
from optimum_cpp.scoring import ScoreTransform, VerbalizerScorer
from tiny_models import LABELS, VERBALIZERS, byte_tokenizer, task, tiny_model


def test_a_transform_survives_its_claim_to_the_bit() -> None:
    prior = tuple(float(value) for value in np.random.default_rng(0).normal(size=5))
    for transform in (ScoreTransform("prior_nll", 0.1 + 0.2, prior), ScoreTransform("nll")):
        assert transform_of(score_claim(transform, allow_empty=True)) == transform


def test_token_ids_are_those_of_the_tokenizer_now() -> None:
    tokenizer = byte_tokenizer(opening="<s>")
    scorer = VerbalizerScorer(tiny_model("llama"), tokenizer, task())
    claim = task_claim(scorer)
    assert [label.name for label in claim.labels] == list(LABELS)
    for label, words in zip(claim.labels, VERBALIZERS, strict=True):
        assert list(label.token_ids) == tokenizer(words, add_special_tokens=False)["input_ids"]


def test_the_mask_digest_is_that_of_the_packed_zeros(pruned: CPPResult) -> None:
    model = pruned.model.model
    for name, claim in pruned.contract.claims.model.matrices.items():
        zeros = (model.get_submodule(name).weight.detach() == 0).to(torch.uint8).numpy()
        expected = hashlib.sha256(np.packbits(zeros.astype(bool)).tobytes()).hexdigest()
        assert claim.mask_digest == f"sha256:{expected}"
