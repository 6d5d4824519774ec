"""Zeros through real training with `Trainer`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

from optimum_cpp import SparsityCallback
from optimum_cpp.blocks import find_blocks, matrices_of
from optimum_cpp.errors import ModelError, UsageError
from optimum_cpp.modeling import CPPResult

Zeros = dict[str, torch.Tensor]


def rows(count: int = 16) -> datasets.Dataset:
    tokens = torch.randint(3, 40, (count, 12), generator=torch.Generator().manual_seed(0)).tolist()
    return datasets.Dataset.from_dict({"input_ids": tokens, "labels": tokens})


def zeros_of(model: Any) -> Zeros:
    return {matrix.name: matrix.weight == 0 for matrix in matrices_of(find_blocks(model))}


def train(folder: Path, output: Path, callbacks: list[Any], resume: bool = False, **options: Any) -> Trainer:
    defaults = {"max_steps": 6, "per_device_train_batch_size": 2, "learning_rate": 1e-2, "weight_decay": 0.1}
    defaults |= {"report_to": [], "use_cpu": True, "logging_steps": 1, "save_steps": 3, "disable_tqdm": True}
    arguments = TrainingArguments(output_dir=str(output), **(defaults | options))
    model = AutoModelForCausalLM.from_pretrained(folder)
    trainer = Trainer(model=model, args=arguments, train_dataset=rows(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def assert_kept(trainer: Trainer, before: Zeros) -> None:
    """The very zeros, no moment of theirs, and other weights that have learnt."""
    model, after = trainer.model, zeros_of(trainer.model)
    assert all(torch.equal(after[name] & zero, zero) for name, zero in before.items())
    optimiser = trainer.optimizer.optimizer if hasattr(trainer.optimizer, "optimizer") else trainer.optimizer
    moments = 0
    for matrix in matrices_of(find_blocks(model)):
        state = optimiser.state[matrix.module.weight]
        for name in ("exp_avg", "exp_avg_sq"):
            assert not state[name][before[matrix.name]].any(), (matrix.name, name)
            moments += int(state[name].count_nonzero())
    assert moments > 0


@pytest.fixture(scope="module")
def before(pruned: CPPResult) -> Zeros:
    return zeros_of(AutoModelForCausalLM.from_pretrained(pruned.directory))


def test_without_the_callback_the_zeros_are_gone(pruned: CPPResult, before: Zeros, tmp_path: Path) -> None:
    after = zeros_of(train(pruned.directory, tmp_path, []).model)
    assert sum(int((after[name] & zero).sum()) for name, zero in before.items()) < 0.01 * sum(
        int(zero.sum()) for zero in before.values()
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"bf16": True},
        {"gradient_checkpointing": True, "max_grad_norm": 0.01},
        {"optim": "adamw_torch_fused"},
    ],
    ids=["plain", "accumulation", "bf16", "checkpointing", "fused"],
)
def test_zeros_and_their_moments_stay(
    options: dict[str, Any], pruned: CPPResult, before: Zeros, tmp_path: Path
) -> None:
    callback = SparsityCallback()
    trainer = train(pruned.directory, tmp_path, [callback], **options)
    assert_kept(trainer, before)
    assert callback.pruned == sum(int(zero.sum()) for zero in before.values())
    dense = AutoModelForCausalLM.from_pretrained(pruned.directory)
    moved = [(a != b).any() for a, b in zip(dense.parameters(), trainer.model.parameters(), strict=True)]
    assert all(moved)


class Norms(TrainerCallback):
    """Norm of all gradients just before each step, after they were clipped."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.found.append(float(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()))


def test_clipping_does_not_count_what_is_pruned(pruned: CPPResult, tmp_path: Path) -> None:
    """The norm that is measured for clipping is that of the gradients that are used."""
    norms = Norms()
    trainer = train(pruned.directory, tmp_path, [SparsityCallback(), norms], max_grad_norm=1e6)
    logged = [entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]
    assert len(logged) == 6 and logged == pytest.approx(norms.found, rel=1e-4)


def test_training_goes_on_from_a_checkpoint(pruned: CPPResult, before: Zeros, tmp_path: Path) -> None:
    whole = train(pruned.directory, tmp_path / "whole", [SparsityCallback()])
    train(pruned.directory, tmp_path / "half", [SparsityCallback()], max_steps=6, save_steps=3)
    (tmp_path / "half" / "checkpoint-6").rename(tmp_path / "later")
    resumed = train(pruned.directory, tmp_path / "half", [SparsityCallback()], resume=True)
    assert_kept(resumed, before)
    for one, two in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(one, two)
    state = json.loads((tmp_path / "half" / "checkpoint-6" / "trainer_state.json").read_text())
    kept = state["stateful_callbacks"]["SparsityCallback"]
    assert kept["attributes"]["pruned"] == sum(int(zero.sum()) for zero in before.values())


def test_matrices_that_are_ignored_fill_up(pruned: CPPResult, before: Zeros, tmp_path: Path) -> None:
    after = zeros_of(train(pruned.directory, tmp_path, [SparsityCallback(ignore=["q_proj"])]).model)
    for name, zero in before.items():
        assert torch.equal(after[name] & zero, zero) != name.endswith("q_proj")


def test_a_dense_model_is_refused(dense_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="prune it first"):
        train(dense_folder, tmp_path, [SparsityCallback()])


def test_what_no_mask_reaches_is_refused() -> None:
    class Arguments:
        deepspeed = "zero3.json"

    with pytest.raises(UsageError, match="DeepSpeed"):
        SparsityCallback().on_train_begin(Arguments(), None, None, model=torch.nn.Linear(2, 2))
    adapted = torch.nn.Linear(2, 2)
    adapted.peft_config = {}  # type: ignore[assignment]
    with pytest.raises(UsageError, match="adapters"):
        SparsityCallback().on_train_begin(object(), None, None, model=adapted)
