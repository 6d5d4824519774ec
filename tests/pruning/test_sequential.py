from __future__ import annotations

import functools
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from optimum_cpp.blocks import Block, find_blocks, matrices_of
from optimum_cpp.errors import ModelError, UsageError
from optimum_cpp.pruning import PrunedMatrix, prune_model
from optimum_cpp.saliency import Saliency
from optimum_cpp.scoring import ClassifierScorer, LabelScorer, VerbalizerScorer
from reference_pruners import mixed, sparsegpt, wanda_importance
from tiny_models import DECODERS, ENCODERS, PROMPT, VERBALIZERS, byte_tokenizer, head_task, task, tiny_model

TEXTS = ("the quick brown fox", "a thing", "x", "she sold the thinnest shells", "over there, the thorn")
LABELS = (3, 0, 2, 1, 2)
ARCHITECTURES = (*DECODERS, *ENCODERS)
DECODER_TOKENIZER = byte_tokenizer(opening="<s>")
ENCODER_TOKENIZER = byte_tokenizer(opening="<s>", closing="</s>")


def scorer_of(name: str, **changes: Any) -> LabelScorer:
    model = tiny_model(name, **changes)
    if name in ENCODERS or name == "albert":
        return ClassifierScorer(model, ENCODER_TOKENIZER, head_task())
    return VerbalizerScorer(model, DECODER_TOKENIZER, task(), max_text_tokens=32)


def rows_of(name: str) -> list[list[int]]:
    """Token ids of each example alone: prompt and true label for a decoder, the text for an encoder."""
    if name in ENCODERS:
        return [ENCODER_TOKENIZER(text)["input_ids"] for text in TEXTS]
    prompts = [PROMPT.replace("{text}", text) for text in TEXTS]
    return [DECODER_TOKENIZER(p + VERBALIZERS[y])["input_ids"] for p, y in zip(prompts, LABELS, strict=True)]


def prune(scorer: LabelScorer, **changes: Any) -> tuple[PrunedMatrix, ...]:
    options: dict[str, Any] = dict(
        base_pruner="wanda", sparsity="0.3", lam="0", saliency=None, batch_tokens=150, seed=0
    )
    return prune_model(scorer, find_blocks(scorer.model), TEXTS, LABELS, **options | changes)


def weight_of(module: nn.Module) -> Any:
    """(d_out, d_in) float64; a Conv1D stores the transpose."""
    weight = module.weight.detach().double().numpy()  # type: ignore[union-attr, operator]
    return weight if isinstance(module, nn.Linear) else weight.T


def gradients_of(scorer: LabelScorer, seed: int = 5) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    matrices = matrices_of(find_blocks(scorer.model))
    return {m.name: torch.rand(m.weight.shape, generator=generator) ** 3 for m in matrices}


def token_inputs(model: Any, names: list[str], rows: list[list[int]]) -> dict[str, Any]:
    """(T, d_in) inputs of the named modules over all rows, each run through the whole model alone."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    modules = dict(model.named_modules())
    with torch.no_grad():
        for ids in rows:
            seen: dict[str, Any] = {}

            def keep_first(module: Any, args: Any, name: str, seen: dict[str, Any] = seen) -> None:
                seen.setdefault(name, args[0])

            hooks = [
                modules[name].register_forward_pre_hook(functools.partial(keep_first, name=name)) for name in names
            ]
            model(torch.tensor([ids]))
            for hook in hooks:
                hook.remove()
            for name, inputs in seen.items():
                assert inputs.numel() == len(ids) * inputs.shape[-1]
                found[name].append(inputs.reshape(len(ids), -1).double().numpy())
    return {name: np.concatenate(parts) for name, parts in found.items()}


def assert_lowest_in_each_row(importance: Any, pruned: Any, sparsity: str) -> None:
    """Exactly so many of each row, none above one that was kept (up to float32 rounding)."""
    count = importance.shape[1] * Fraction(sparsity) // 1
    assert (pruned.sum(1) == count).all()
    highest_pruned = np.where(pruned, importance, -np.inf).max(1)
    lowest_kept = np.where(pruned, np.inf, importance).min(1)
    assert (highest_pruned <= lowest_kept * (1 + 1e-5)).all()


THREE_BLOCKS = {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}


@pytest.mark.parametrize("batch_tokens", [1, 150])
@pytest.mark.parametrize(
    "name, config", [*((name, {}) for name in ARCHITECTURES), ("gemma2", THREE_BLOCKS), ("gemma3", THREE_BLOCKS)]
)
def test_statistics_of_a_block_see_the_blocks_before_it_pruned(
    name: str, config: dict[str, Any], batch_tokens: int
) -> None:
    """Against the inputs that hooks see when each example runs through the whole model alone."""
    scorer = scorer_of(name, **config)
    gradients = gradients_of(scorer)
    prune(scorer, lam="0.3", saliency=Saliency(gradients, "square"), batch_tokens=batch_tokens)
    reference = tiny_model(name, **config)
    modules = dict(reference.named_modules())
    for block in find_blocks(scorer.model):
        inputs = token_inputs(reference, [matrix.name for matrix in block.matrices], rows_of(name))
        for matrix in block.matrices:
            dense = weight_of(modules[matrix.name])
            importance = mixed(
                wanda_importance(dense, inputs[matrix.name]), dense, gradients[matrix.name].double().numpy(), 0.3
            )
            found = weight_of(matrix.module)
            assert_lowest_in_each_row(importance, found == 0, "0.3")
            np.testing.assert_array_equal(found[found != 0], dense[found != 0])
            modules[matrix.name].weight.data = matrix.module.weight.data.clone()  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2", "opt", "bert", "deberta_v2"])
def test_sparsegpt_on_the_same_inputs(name: str) -> None:
    scorer = scorer_of(name)
    outcomes = {outcome.name: outcome for outcome in prune(scorer, base_pruner="sparsegpt")}
    reference = tiny_model(name)
    modules = dict(reference.named_modules())
    for block in find_blocks(scorer.model):
        inputs = token_inputs(reference, [matrix.name for matrix in block.matrices], rows_of(name))
        for matrix in block.matrices:
            expected, pruned = sparsegpt(weight_of(modules[matrix.name]), inputs[matrix.name], "0.3")
            found = weight_of(matrix.module)
            np.testing.assert_array_equal(found == 0, pruned)
            np.testing.assert_allclose(found, expected, atol=1e-3)
            assert outcomes[matrix.name].damping == 0.01
            modules[matrix.name].weight.data = matrix.module.weight.data.clone()  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("base_pruner, lam", [("gradient", "0"), ("gradient", "0.3"), ("snip", "0"), ("snip", "0.3")])
def test_base_pruners_that_rank_by_the_whole_models_gradients(name: str, base_pruner: str, lam: str) -> None:
    scorer = scorer_of(name)
    base, gradients = gradients_of(scorer, seed=6), gradients_of(scorer)
    dense = {m.name: weight_of(m.module).copy() for m in matrices_of(find_blocks(scorer.model))}
    prune(scorer, base_pruner=base_pruner, lam=lam, saliency=Saliency(gradients, "square"), base_moments=base)
    for matrix in matrices_of(find_blocks(scorer.model)):
        weight, moment = dense[matrix.name], base[matrix.name].double().numpy()
        importance = moment if base_pruner == "gradient" else np.abs(weight) * moment
        mixing = gradients[matrix.name].double().numpy() if lam != "0" else None
        assert_lowest_in_each_row(mixed(importance, weight, mixing, float(lam)), weight_of(matrix.module) == 0, "0.3")


def regional_of(model: Any, block: Block, rows: list[list[int]]) -> dict[str, Any]:
    """Mean over examples, each alone through the whole model, of the squared gradient of the block's output norm."""
    outputs: list[Any] = []
    handle = block.module.register_forward_hook(lambda module, args, output: outputs.append(output))
    weights = {f"{m.name}.weight": m.module.weight.detach() for m in block.matrices}

    def norm(chosen: dict[str, Any], ids: list[int]) -> Any:
        torch.func.functional_call(model, chosen, (torch.tensor([ids]),))
        output = outputs.pop()
        return (output[0] if isinstance(output, tuple) else output).square().sum().sqrt()

    squares = [{k: g.detach().square() for k, g in torch.func.grad(norm)(weights, ids).items()} for ids in rows]
    handle.remove()
    means = {m.name: torch.stack([s[f"{m.name}.weight"] for s in squares]).mean(0) for m in block.matrices}
    linear = {m.name: isinstance(m.module, nn.Linear) for m in block.matrices}
    return {key: (value if linear[key] else value.T).double().numpy() for key, value in means.items()}


@pytest.mark.parametrize("batch_tokens", [1, 150])
@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2", "bert"])
def test_wanda_plus_plus_on_the_same_inputs(name: str, batch_tokens: int) -> None:
    """Norms and regional gradients of a block both see the blocks before it pruned, and its own matrices dense."""
    scorer = scorer_of(name)
    gradients = gradients_of(scorer)
    saliency = Saliency(gradients, "root")
    prune(scorer, base_pruner="wanda++", lam="0.3", saliency=saliency, batch_tokens=batch_tokens)
    reference = tiny_model(name)
    modules = dict(reference.named_modules())
    for block, twin in zip(find_blocks(scorer.model), find_blocks(reference), strict=True):
        inputs = token_inputs(reference, [matrix.name for matrix in block.matrices], rows_of(name))
        regional = regional_of(reference, twin, rows_of(name))
        for matrix in block.matrices:
            dense = weight_of(modules[matrix.name])
            base = wanda_importance(dense, inputs[matrix.name]) + 100 * np.abs(dense) * np.sqrt(regional[matrix.name])
            cal = np.abs(dense) * np.sqrt(gradients[matrix.name].double().numpy())
            importance = 0.7 * base / np.linalg.norm(base) + 0.3 * cal / np.linalg.norm(cal)
            assert_lowest_in_each_row(importance, weight_of(matrix.module) == 0, "0.3")
        for matrix in block.matrices:
            modules[matrix.name].weight.data = matrix.module.weight.data.clone()  # type: ignore[union-attr, operator]


def test_wanda_plus_plus_where_examples_share_inputs() -> None:
    """Their gradients cannot be told apart in a batch, so each example becomes one."""
    scorers = [scorer_of("deberta_v2"), scorer_of("deberta_v2")]
    for scorer, batch_tokens in zip(scorers, (150, 1), strict=True):
        outcomes = prune(scorer, base_pruner="wanda++", batch_tokens=batch_tokens, sparsity="0.5")
        assert all(outcome.zeros * 2 == outcome.size for outcome in outcomes)
    batched, single = (matrices_of(find_blocks(scorer.model)) for scorer in scorers)
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(batched, single, strict=True))


def test_pruning_earlier_blocks_matters() -> None:
    """With the dense model's inputs another mask would come out, so the tests above can fail."""
    scorer = scorer_of("llama")
    prune(scorer)
    dense = tiny_model("llama")
    matrix = find_blocks(scorer.model)[1].matrices[0]
    inputs = token_inputs(dense, [matrix.name], rows_of("llama"))[matrix.name]
    importance = wanda_importance(weight_of(dict(dense.named_modules())[matrix.name]), inputs)
    with pytest.raises(AssertionError):
        assert_lowest_in_each_row(importance, weight_of(matrix.module) == 0, "0.3")


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("base_pruner", ["magnitude", "random", "wanda", "sparsegpt"])
@pytest.mark.parametrize("sparsity", ["0.29", "0.5"])
def test_exact_counts_are_reached_and_reported(name: str, base_pruner: str, sparsity: str) -> None:
    scorer = scorer_of(name)
    outcomes = prune(scorer, base_pruner=base_pruner, sparsity=sparsity)
    matrices = matrices_of(find_blocks(scorer.model))
    assert [outcome.name for outcome in outcomes] == [matrix.name for matrix in matrices]
    for outcome, matrix in zip(outcomes, matrices, strict=True):
        rows, width = matrix.weight.shape
        expected = rows * (width * Fraction(sparsity) // 1) if base_pruner == "wanda" else None
        assert outcome.size == rows * width
        assert outcome.zeros == (matrix.weight == 0).sum()
        assert outcome.zeros == (expected if expected is not None else rows * width * Fraction(sparsity) // 1)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
def test_everything_else_stays_dense(name: str) -> None:
    scorer = scorer_of(name)
    before = {key: value.clone() for key, value in scorer.model.state_dict().items()}
    prune(scorer)
    changed = {key for key, value in scorer.model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {f"{matrix.name}.weight" for matrix in matrices_of(find_blocks(scorer.model))}


@pytest.mark.parametrize("base_pruner", ["magnitude", "random", "wanda", "sparsegpt"])
@pytest.mark.parametrize("sparsity", ["0", "0.0"])
def test_sparsity_zero_changes_nothing(base_pruner: str, sparsity: str) -> None:
    scorer = scorer_of("llama")
    scorer.model.model.layers[0].mlp.up_proj.weight.data[0, :7] = 0
    before = {key: value.clone() for key, value in scorer.model.state_dict().items()}
    outcomes = prune(
        scorer, base_pruner=base_pruner, sparsity=sparsity, lam="0.3", saliency=Saliency(gradients_of(scorer), "square")
    )
    assert all(torch.equal(value, before[key]) for key, value in scorer.model.state_dict().items())
    assert {outcome.name: outcome.zeros for outcome in outcomes if outcome.zeros} == {"model.layers.0.mlp.up_proj": 7}


@functools.cache
def pruned_weights(base_pruner: str, lam: str, with_gradients: bool, seed: int = 0) -> dict[str, torch.Tensor]:
    scorer = scorer_of("llama")
    saliency = Saliency(gradients_of(scorer), "square") if with_gradients else None
    prune(scorer, base_pruner=base_pruner, lam=lam, saliency=saliency, seed=seed)
    return {matrix.name: matrix.weight for matrix in matrices_of(find_blocks(scorer.model))}


@pytest.mark.parametrize("base_pruner", ["magnitude", "random", "wanda", "sparsegpt"])
@pytest.mark.parametrize("lam", ["0", "0.0"])
def test_lambda_zero_is_the_base_pruner_to_the_bit(base_pruner: str, lam: str) -> None:
    base, zero = pruned_weights(base_pruner, "0", False), pruned_weights(base_pruner, lam, True)
    other = pruned_weights(base_pruner, "0.5", True)
    assert all(torch.equal(base[name], zero[name]) for name in base)
    assert not any(torch.equal(base[name], other[name]) for name in base)


def test_random_masks_follow_the_seed_and_differ_between_matrices() -> None:
    first, second = pruned_weights("random", "0", False), pruned_weights("random", "0", False, seed=1)
    names = [f"model.layers.{layer}.mlp.{kind}_proj" for layer in (0, 1) for kind in ("gate", "up")]
    masks = [first[name] == 0 for name in names] + [second[name] == 0 for name in names]
    assert all(not torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])
    scorer = scorer_of("llama")
    blocks = find_blocks(scorer.model, target_modules=["model.layers.1.mlp.up_proj"])
    options: dict[str, Any] = dict(base_pruner="random", sparsity="0.3", lam="0", saliency=None)
    prune_model(scorer, blocks, TEXTS, LABELS, **options, batch_tokens=150, seed=0)
    assert torch.equal(blocks[1].matrices[0].weight, first["model.layers.1.mlp.up_proj"])


def test_lambda_without_a_saliency() -> None:
    with pytest.raises(ModelError, match=r"a saliency for lambda = 0\.3, but there is none"):
        prune(scorer_of("llama"), lam="0.3")


def test_an_unknown_base_pruner() -> None:
    names = "magnitude, wanda, sparsegpt, random, gradient, snip, wanda++"
    with pytest.raises(UsageError, match=re.escape(f"base pruner among {names}, but got 'wand'")):
        prune(scorer_of("llama"), base_pruner="wand")


def test_a_base_pruner_without_its_gradients() -> None:
    for base_pruner in ("gradient", "snip"):
        with pytest.raises(ModelError, match=f"gradients for the base pruner {base_pruner}, but there are none"):
            prune(scorer_of("llama"), base_pruner=base_pruner)


@pytest.mark.parametrize("base_pruner", ["wanda", "sparsegpt"])
def test_activations_that_are_not_finite_name_the_matrix(base_pruner: str) -> None:
    scorer = scorer_of("llama")
    scorer.model.get_input_embeddings().weight.data[DECODER_TOKENIZER.convert_tokens_to_ids("q")] = float("nan")
    with pytest.raises(ModelError, match=r"finite inputs of matrix model\.layers\.0\.self_attn\.q_proj"):
        prune(scorer, base_pruner=base_pruner)


def test_shared_layers_are_refused() -> None:
    with pytest.raises(ModelError, match="models that share or skip blocks"):
        prune(scorer_of("albert"))


@pytest.mark.parametrize("base_pruner", ["magnitude", "wanda", "sparsegpt"])
def test_bfloat16_models_keep_their_dtype_and_kept_weights(base_pruner: str) -> None:
    scorer = scorer_of("llama", dtype=torch.bfloat16)
    before = {m.name: m.weight.clone() for m in matrices_of(find_blocks(scorer.model))}
    prune(scorer, base_pruner=base_pruner, sparsity="0.5")
    for matrix in matrices_of(find_blocks(scorer.model)):
        assert matrix.weight.dtype == torch.bfloat16
        assert (matrix.weight == 0).sum() == matrix.weight.numel() // 2
        if base_pruner != "sparsegpt":
            kept = matrix.weight != 0
            assert torch.equal(matrix.weight[kept], before[matrix.name][kept])


def test_only_the_chosen_matrices_are_pruned() -> None:
    scorer = scorer_of("gpt2")
    blocks = find_blocks(scorer.model, target_modules=["1.mlp.c_proj"])
    options: dict[str, Any] = dict(base_pruner="wanda", sparsity="0.5", lam="0", saliency=None)
    outcomes = prune_model(scorer, blocks, TEXTS, LABELS, **options, batch_tokens=150, seed=0)
    assert [outcome.name for outcome in outcomes] == ["transformer.h.1.mlp.c_proj"]
    matrices = matrices_of(find_blocks(scorer.model))
    assert [m.name for m in matrices if (m.weight == 0).any()] == ["transformer.h.1.mlp.c_proj"]
