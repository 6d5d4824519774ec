"""Algorithm 1 of the CPP paper, in its order: saliency, candidates, selection, freeze, quantile.

This is the only module that knows the order. Each step is a function of plain arguments elsewhere.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from .blocks import Matrix, describe_blocks, find_blocks, matrices_of
from .candidates import BASE, DENSE, Bench, MeasuredCandidate
from .configuration import CPPConfig
from .contract import ReliabilityContract
from .data import ClassificationTask, DataRoles, Examples
from .freezing import freeze, score_noise, scorer_of
from .frozen import Calibration, Evaluation, FrozenClassifier
from .loading import LoadedModel, weights_digest
from .measured_saliency import base_gradients, check_saliency, measure_saliency, ranks_by_gradients
from .results import RunResults
from .selection import ACCURACY_SLACK, Selection, learn_then_test, select_by_guardrail
from .stages import StageClock
from .writing import Findings, TestedModel, write_contract, write_results

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What a run returns: the frozen classifier, its contract, and the numbers for people."""

    classifier: FrozenClassifier
    contract: ReliabilityContract
    results: RunResults
    tested: tuple[TestedModel, ...]


def run(
    loaded: LoadedModel,
    task: ClassificationTask,
    roles: DataRoles,
    config: CPPConfig,
    *,
    folder: Path,
    work: Path,
) -> Outcome:
    """Prune, select, freeze and calibrate; the frozen model is saved to `folder`.

    Args:
        loaded: the dense model; its weights are back in place when the run ends.
        task: labels, verbalizers and prompt.
        roles: the five data roles, the conformal one still locked.
        config: the recipe, with its score decided.
        folder: an empty folder for the frozen model.
        work: a folder for the candidates' weights, which the caller removes.
    """
    clock = StageClock()
    with clock.stage("prepare"):
        scorer = scorer_of(loaded, task, config)
        blocks = find_blocks(loaded.model, target_modules=config.target_modules, ignore=config.ignore)
        check_saliency(config, len(task.labels), len(roles.val_cal), blocks)
        bench = Bench(scorer, blocks, tuple(matrices_of(blocks)), roles, config, work)
        bench.keep(DENSE)
        dense_digest = weights_digest(loaded.model)
        logger.info("%s; %s", scorer.describe(), describe_blocks(blocks))
        _say_if_sparse(bench.matrices)
    with clock.stage("score the dense model on validation"):
        dense = bench.measure(DENSE)

    # 2. Saliency from the prune role.
    saliency, facts = None, None
    if any(Fraction(lam) for lam in config.lambda_grid):
        with clock.stage("saliency"):
            saliency, facts = measure_saliency(bench, dense)
    own = None
    if ranks_by_gradients(config):
        with clock.stage("gradients of the base pruner"):
            own = base_gradients(bench)
    # 3. Candidates.
    candidates: dict[str, MeasuredCandidate] = {}
    with clock.stage("prune candidates"):
        start = bench.dense_start()
    for lam in config.lambda_grid:
        with clock.stage("prune candidates"):
            pruned = bench.prune(lam, start, saliency, own)
        with clock.stage("score candidates on validation"):
            candidates[lam] = bench.measure(lam, pruned)
    del saliency, own, start
    # 4. Select.
    selection = choose(candidates, config)
    chosen = candidates[selection.lam]
    # 5. Freeze.
    with clock.stage("freeze"):
        bench.restore(chosen.name)
        frozen = freeze(loaded, task, chosen.transform, config, chosen.pruned, folder)
        noise = score_noise(frozen.classifier.scorer, roles.val_eval.texts)
    # 6. Open the conformal role; the quantile.
    with clock.stage("calibrate"):
        conformal = frozen.classifier.open_conformal(roles)
        calibration = frozen.classifier.calibrate(conformal, config.alpha, "calibrate")
    # 8. Evaluate, with references that nothing is selected from.
    with clock.stage("evaluate on test"):
        tested = _evaluate(frozen.classifier, chosen, calibration, roles.test)
    with clock.stage("evaluate references"):
        tested = (*_references(bench, [dense, candidates[_zero(config)]], chosen, conformal), *tested)
    bench.restore(DENSE)
    # 7. Contract and results; the caller writes them beside the model.
    findings = Findings(
        loaded, dense_digest, frozen, calibration, selection, facts, dense, candidates, tested, noise, clock
    )
    contract = write_contract(findings, roles, config)
    results = write_results(findings, roles, config, contract)
    return Outcome(frozen.classifier, contract, results, tested)


def choose(candidates: dict[str, MeasuredCandidate], config: CPPConfig) -> Selection:
    """Apply the recipe's selection rule to the candidates' exact counts on val_eval."""
    choices = [candidate.as_choice for candidate in candidates.values()]
    if choices[0].rows * ACCURACY_SLACK < 1:
        logger.warning(
            "With %d val_eval rows a single row moves accuracy and coverage by more than the rule's slack of %g; "
            "the choice of lambda is mostly chance, so give more --val_rows.",
            choices[0].rows,
            float(ACCURACY_SLACK),
        )
    if config.selection == "learn_then_test":
        return learn_then_test(choices, str(config.ltt_risk), config.ltt_delta)
    return select_by_guardrail(choices, config.alpha)


def _zero(config: CPPConfig) -> str:
    return next(lam for lam in config.lambda_grid if Fraction(lam) == 0)


def _evaluate(
    classifier: FrozenClassifier, candidate: MeasuredCandidate, calibration: Calibration, test: Examples
) -> tuple[TestedModel, ...]:
    if not len(test):
        return ()
    evaluation = classifier.evaluate(test, calibration.quantile.value, "test: chosen")
    return (TestedModel("chosen", candidate.name, calibration.quantile, evaluation),)


def _references(
    bench: Bench, references: list[MeasuredCandidate], chosen: MeasuredCandidate, conformal: Examples
) -> tuple[TestedModel, ...]:
    """The dense model and the base pruner, calibrated on the conformal role after the freeze."""
    tested = []
    test = bench.roles.test
    for reference in references:
        if reference.name == chosen.name or not len(test):
            continue
        bench.restore(reference.name)
        name = DENSE if reference.name == DENSE else BASE
        classifier = FrozenClassifier(bench.scorer, reference.transform, bench.config.allow_empty, digest="")
        quantile = classifier.calibrate(conformal, bench.config.alpha, f"calibrate: {name}").quantile
        evaluation: Evaluation = classifier.evaluate(test, quantile.value, f"test: {name}")
        tested.append(TestedModel(name, None if name == DENSE else reference.name, quantile, evaluation))
    return tuple(tested)


def _say_if_sparse(matrices: tuple[Matrix, ...]) -> None:
    zeros = sum(int((matrix.weight == 0).sum()) for matrix in matrices)
    share = zeros / sum(matrix.weight.numel() for matrix in matrices)
    if share > 0.01:
        logger.warning(
            "This model is already sparse: %.1f %% of its prunable weights are zero; the new mask is chosen over all "
            "weights, so masks add up and the achieved sparsity can exceed the one asked for.",
            100 * share,
        )
