"""From what a run found to its contract and its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .candidates import BASE, DENSE, MeasuredCandidate
from .configuration import CPPConfig
from .conformal import (
    ConformalQuantile,
    acceptance_band,
    contract_preservation,
    paired_size_difference,
)
from .contract import Claims, ReliabilityContract
from .contract.canonical import digest, float_hex
from .contract.claims import (
    CalibrationClaim,
    EvaluationClaim,
    PruningClaim,
    SaliencyClaim,
    ThresholdClaim,
    VerdictClaim,
)
from .contract.describe import environment, evaluation_claim, selection_claim
from .data import DataRoles
from .freezing import Freeze
from .frozen import Calibration, Evaluation
from .loading import LoadedModel
from .measured_saliency import SaliencyFacts
from .results import CandidateRow, ModelRow, RunResults
from .selection import Selection
from .stages import StageClock


@dataclass(frozen=True)
class TestedModel:
    """One model on the test role, at its own quantile."""

    __test__ = False  # not a test class, whatever its name begins with

    model: str
    lam: str | None
    quantile: ConformalQuantile
    evaluation: Evaluation

    @property
    def band(self) -> tuple[int, int]:
        """Acceptance band of the covered count."""
        return acceptance_band(self.quantile.n, self.quantile.k, self.evaluation.counts.rows)


@dataclass(frozen=True)
class Findings:
    """Everything that a run found, before it is written down."""

    loaded: LoadedModel
    dense_digest: str
    frozen: Freeze
    calibration: Calibration
    selection: Selection
    saliency: SaliencyFacts | None
    dense: MeasuredCandidate
    candidates: dict[str, MeasuredCandidate]
    tested: tuple[TestedModel, ...]
    noise: float
    clock: StageClock


def write_contract(found: Findings, roles: DataRoles, config: CPPConfig) -> ReliabilityContract:
    """The contract of a pruned model."""
    choices = [candidate.as_choice for candidate in found.candidates.values()]
    claims = Claims(
        schema=1,
        task=found.frozen.task,
        score=found.frozen.score,
        model=found.frozen.model,
        pruning=PruningClaim(
            dense_model=found.loaded.name,
            dense_revision=found.loaded.revision,
            dense_weights_digest=found.dense_digest,
            base_pruner=config.base_pruner,
            pattern="unstructured",
            sparsity=config.sparsity,
            saliency=None if found.saliency is None else saliency_claim(found.saliency, config),
            lam=found.selection.lam,
            seed=config.seed,
        ),
        selection=selection_claim(choices, found.selection, config),
        calibration=calibration_claim(found.calibration),
        manifest_digest=digest(roles.manifest.to_dict()),
        evaluation=evaluation_claims(found.tested),
        verdicts=verdict_claim(found.tested, config),
        predecessor=None,
    )
    record = run_record(found.frozen, found.calibration, found.tested, found.noise, found.clock)
    return ReliabilityContract(claims, record)


def saliency_claim(facts: SaliencyFacts, config: CPPConfig) -> SaliencyClaim:
    """Which gradients the saliency was made of."""
    band = facts.band
    return SaliencyClaim(
        targets=config.saliency,
        score=config.saliency_score,
        estimator=config.estimator,
        num_sketches=config.num_sketches if config.estimator == "rademacher" else 0,
        importance_scale=facts.scale,
        labels_per_example=facts.labels_per_example,
        threshold=None if band is None else ThresholdClaim(float_hex(band.quantile), float_hex(band.width)),
    )


def run_record(
    frozen: Freeze, calibration: Calibration, tested: Sequence[TestedModel], noise: float, clock: StageClock
) -> dict[str, Any]:
    """What happened to be so: environment, rounding noise, truncated texts, seconds and memory."""
    truncated = {"conformal": calibration.truncated}
    for item in tested:
        if item.model not in (DENSE, BASE):
            truncated["test"] = item.evaluation.truncated
    return {
        **environment(frozen.classifier.scorer.model),
        "batch_versus_single": noise,
        "truncated_texts": truncated,
        "stages": [vars(stage) for stage in clock.stages],
    }


def calibration_claim(calibration: Calibration) -> CalibrationClaim:
    """The quantile with the scores that prove it."""
    quantile = calibration.quantile
    return CalibrationClaim(
        alpha=quantile.alpha,
        n=quantile.n,
        k=quantile.k,
        quantile=float_hex(quantile.value),
        scores=tuple(float_hex(value) for value in calibration.scores.tolist()),
        top_probabilities=tuple(float_hex(value) for value in calibration.top_probabilities.tolist()),
        set_sizes=tuple(calibration.set_sizes.tolist()),
    )


def evaluation_claims(tested: Sequence[TestedModel]) -> tuple[EvaluationClaim, ...]:
    """Exact counts of every tested model."""
    return tuple(evaluation_claim(t.model, t.quantile.value, t.evaluation.counts, t.band) for t in tested)


def verdict_claim(tested: Sequence[TestedModel], config: CPPConfig) -> VerdictClaim | None:
    """Validity and efficiency of the chosen model against the dense one, where both were tested."""
    by_name = {item.model: item for item in tested}
    if "chosen" not in by_name or DENSE not in by_name:
        return None
    chosen, dense = by_name["chosen"], by_name[DENSE]
    difference = paired_size_difference(chosen.evaluation.set_sizes, dense.evaluation.set_sizes, seed=config.seed)
    found = contract_preservation(
        covered=chosen.evaluation.counts.covered,
        band=chosen.band,
        difference=difference,
        epsilon_size=config.epsilon_size,
    )
    return VerdictClaim(
        epsilon_size=config.epsilon_size,
        size_difference=(float_hex(difference.mean), float_hex(difference.low), float_hex(difference.high)),
        validity=found.validity.verdict,
        validity_reason=found.validity.reason,
        efficiency=found.efficiency.verdict,
        efficiency_reason=found.efficiency.reason,
    )


def write_results(found: Findings, roles: DataRoles, config: CPPConfig, contract: ReliabilityContract) -> RunResults:
    """The numbers for the summary, the card and the figures."""
    claims = contract.claims
    matrices = claims.model.matrices
    decisions = {decision.lam: decision for decision in found.selection.decisions}
    return RunResults(
        model=found.loaded.name,
        dataset=roles.manifest.dataset.id,
        task=claims.task.name,
        labels=claims.labels,
        base_pruner=config.base_pruner,
        sparsity=config.sparsity,
        achieved_sparsity=sum(m.zeros for m in matrices.values()) / sum(m.size for m in matrices.values()),
        score=claims.score.name,
        alpha=config.alpha,
        lam=found.selection.lam,
        validation=tuple(
            CandidateRow(lam, item.counts, decisions[lam].eligible, decisions[lam].reason)
            for lam, item in found.candidates.items()
        ),
        dense_validation=found.dense.counts,
        test=model_rows(found.tested),
        verdicts=verdict_lines(contract),
        matrices={name: matrix.zeros / matrix.size for name, matrix in matrices.items()},
        stages=tuple(found.clock.stages),
        truncated_texts=contract.record["truncated_texts"],
        digest=contract.digest,
    )


def model_rows(tested: Sequence[TestedModel]) -> tuple[ModelRow, ...]:
    """Rows of the results table."""
    return tuple(ModelRow(t.model, t.lam, t.quantile.value, t.evaluation.counts, t.band) for t in tested)


def verdict_lines(contract: ReliabilityContract) -> dict[str, dict[str, str]]:
    """The contract's verdicts by name, for people."""
    verdicts = contract.claims.verdicts
    if verdicts is None:
        return {}
    return {
        "validity": {"verdict": verdicts.validity, "reason": verdicts.validity_reason},
        "efficiency": {"verdict": verdicts.efficiency, "reason": verdicts.efficiency_reason},
    }
