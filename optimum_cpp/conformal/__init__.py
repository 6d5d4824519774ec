"""Split conformal prediction on plain arrays: quantile, prediction sets, and what they are judged by."""

from .comparison import (
    ContractPreservation,
    SizeDifference,
    Verdict,
    contract_preservation,
    paired_size_difference,
)
from .conditional import coverage_gap, size_stratified_violation
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
    "SetEvaluation",
    "SizeDifference",
    "Verdict",
    "acceptance_band",
    "conformal_quantile",
    "conformal_rank",
    "contract_preservation",
    "coverage_gap",
    "evaluate_sets",
    "expected_calibration_error",
    "expected_coverage_upper",
    "hoeffding_interval",
    "paired_size_difference",
    "prediction_sets",
    "rows_needed",
    "size_stratified_violation",
    "summarise",
]
