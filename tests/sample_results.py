"""Results as a run leaves them, with hostile names where a reader could be fooled."""

from __future__ import annotations

from dataclasses import replace

from optimum_cpp.conformal import SetEvaluation
from optimum_cpp.results import CandidateRow, ModelRow, RunResults
from optimum_cpp.stages import Stage

LABELS = ("film", "a|b", "x](http://evil) `y`", "---\nlicense: evil")


def counts(covered: int, sizes: tuple[int, ...], correct: int) -> SetEvaluation:
    """Counts of 100 rows over 4 labels; `sizes[s]` rows have s labels."""
    return SetEvaluation(
        rows=100,
        classes=4,
        covered=covered,
        size_sum=sum(size * count for size, count in enumerate(sizes)),
        correct=correct,
        empty=sizes[0],
        singletons=sizes[1],
        size_histogram=sizes,
        ece=0.125,
    )


def sample_results(**changes: object) -> RunResults:
    """A run on 100 test rows in which lambda 0.3 was chosen."""
    base, mixed = counts(88, (2, 40, 30, 20, 8), 60), counts(91, (0, 70, 20, 10, 0), 65)
    results = RunResults(
        model="org/model",
        dataset="/home/somebody/secret/rows.jsonl",
        task="custom",
        labels=LABELS,
        base_pruner="wanda",
        sparsity="0.5",
        achieved_sparsity=0.5,
        score="prior_nll",
        alpha="0.1",
        lam="0.3",
        validation=(
            CandidateRow("0", base, True, "eligible; size 1.92; not chosen"),
            CandidateRow("0.3", mixed, True, "eligible; size 1.4; chosen: smallest set"),
        ),
        dense_validation=counts(90, (0, 80, 20, 0, 0), 70),
        test=(
            ModelRow("dense", None, 1.25, counts(90, (0, 80, 20, 0, 0), 70), (78, 98)),
            ModelRow("base", "0", 2.5, base, (78, 98)),
            ModelRow("chosen", "0.3", float("inf"), mixed, (78, 90)),
        ),
        verdicts={"validity": {"verdict": "undecided", "reason": "91 rows covered"}},
        matrices={"layers.0.q_proj": 0.5},
        stages=(Stage("saliency", 1.5, 100.0), Stage("calibrate", 2.0, 120.0)),
        truncated_texts={"conformal": 3, "test": 0},
        digest="sha256:abc",
    )
    return replace(results, **changes)  # type: ignore[arg-type]
