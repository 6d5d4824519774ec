"""Coverage, set size and the rest as a metric of `evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datasets
import numpy as np

from ..conformal.summary import summarise
from ..errors import DataError, MissingDependency, UsageError

try:
    import evaluate
except ImportError as error:
    raise MissingDependency('The metric needs `evaluate`: pip install "optimum-cpp[evaluate]".') from error

_DESCRIPTION = (
    "Prediction sets {labels whose nonconformity score is at most a quantile}: coverage, mean set size, accuracy, "
    "calibration error, and how coverage varies between classes, groups and set sizes."
)
_INPUTS = """
Args:
    predictions: N rows of K nonconformity scores, small for likely labels (-log p, say).
    references: N true labels, whole numbers from 0.
    quantile: the calibrated quantile; a finite number, or inf.
    alpha: allowed miscoverage behind it, as a decimal string such as "0.1".
    calibration_rows: rows behind the quantile, for the acceptance band.
    groups: N subgroups, for their coverage gap.
    allow_empty: keep empty sets (default), or give them the predicted label.
Returns:
    the figures of `optimum_cpp.conformal.summarise`, by name.
"""


class ConformalMetric(evaluate.Metric):  # type: ignore[misc]
    """`evaluate.load(optimum_cpp.metric_path())`, or this class itself."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            # float32 would move scores that equal the quantile to its other side.
            features=datasets.Features(
                {
                    "predictions": datasets.Sequence(datasets.Value("float64")),
                    "references": datasets.Value("int64"),
                }
            ),
        )

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs: Any) -> None:
        """Add rows of scores with their labels; `compute` with rows comes here as well."""
        for name, value in (("predictions", predictions), ("references", references)):
            if value is None:
                raise UsageError(f"Expected argument `{name}` beside the other rows, but it is missing.")
        super().add_batch(predictions=predictions, references=references, **kwargs)

    def _compute(
        self,
        predictions: Sequence[Sequence[float]],
        references: Sequence[int],
        *,
        quantile: float | None = None,
        alpha: str | None = None,
        calibration_rows: int | None = None,
        groups: Sequence[Any] | None = None,
        allow_empty: bool = True,
    ) -> dict[str, float]:
        for name, value in (("quantile", quantile), ("alpha", alpha)):
            if value is None:
                raise UsageError(f"Expected argument `{name}` of compute(), but it is missing.")
        return summarise(
            _rectangle(predictions),
            np.asarray(references, dtype=np.int64),
            quantile=quantile,  # type: ignore[arg-type]
            alpha=str(alpha),
            calibration_rows=calibration_rows,
            groups=None if groups is None else np.asarray(groups),
            allow_empty=allow_empty,
        )


def _rectangle(predictions: Sequence[Sequence[float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(N, K) float64 of rows of equal length."""
    width = len(predictions[0]) if len(predictions) else 0
    for number, row in enumerate(predictions):
        if len(row) != width:
            raise DataError(
                f"Expected the score of every label in each row of `predictions`, but row {number} has {len(row)} "
                f"and row 0 has {width}."
            )
    return np.asarray(predictions, dtype=np.float64).reshape(len(predictions), width)
