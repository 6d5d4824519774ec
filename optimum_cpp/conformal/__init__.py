"""Split conformal prediction on plain arrays: quantile, prediction sets, what they are judged by, and drift."""

from .comparison import (
    ContractPreservation,
    SizeDifference,
    Verdict,
    contract_preservation,
    paired_size_difference,
)
from .conditional import coverage_gap, size_stratified_violation
from .drift import (
    SampleComparison,
    compare_set_sizes,
    compare_values,
    conformal_p_values,
    coverage_shortfall,
    martingale_test,
    simple_jumper,
)
from .metrics import (
    SetEvaluation,
    acceptance_band,
    evaluate_sets,
    expected_calibration_error,
    expected_coverage_upper,
    hoeffding_interval,
)
from .quantile import ConformalQuantile, conformal_quantile, conformal_rank, rows_needed
from .sets import prediction_sets
from .summary import summarise

__all__ = [
    "ConformalQuantile",
    "ContractPreservation",
    "SampleComparison",
    "SetEvaluation",
    "SizeDifference",
    "Verdict",
    "acceptance_band",
    "compare_set_sizes",
    "compare_values",
    "conformal_p_values",
    "conformal_quantile",
    "conformal_rank",
    "contract_preservation",
    "coverage_gap",
    "coverage_shortfall",
    "evaluate_sets",
    "expected_calibration_error",
    "expected_coverage_upper",
    "hoeffding_interval",
    "martingale_test",
    "paired_size_difference",
    "prediction_sets",
    "rows_needed",
    "simple_jumper",
    "size_stratified_violation",
    "summarise",
]
