"""The metric through `evaluate` itself, without a network."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import evaluate
import numpy as np
import pytest

from optimum_cpp import ConformalMetric, metric_path
from optimum_cpp.conformal import summarise
from optimum_cpp.errors import DataError, UsageError

GENERATOR = np.random.default_rng(0)
SCORES = GENERATOR.exponential(size=(90, 4))
LABELS = GENERATOR.integers(0, 4, 90)
EXPECTED = summarise(SCORES, LABELS, quantile=1.1, alpha="0.1")


@pytest.fixture
def metric(tmp_path: Path) -> Any:
    return evaluate.load(metric_path("conformal"), cache_dir=str(tmp_path))


def test_a_loaded_metric_gives_the_same_figures(metric: Any) -> None:
    assert metric.compute(predictions=SCORES, references=LABELS, quantile=1.1, alpha="0.1") == EXPECTED


def test_the_class_itself_gives_the_same_figures(tmp_path: Path) -> None:
    metric = ConformalMetric(cache_dir=str(tmp_path))
    assert metric.compute(predictions=SCORES, references=LABELS, quantile=1.1, alpha="0.1") == EXPECTED


def test_batches_add_up(metric: Any) -> None:
    for start in range(0, 90, 35):
        metric.add_batch(predictions=SCORES[start : start + 35], references=LABELS[start : start + 35])
    assert metric.compute(quantile=1.1, alpha="0.1") == EXPECTED


def test_single_rows_add_up(metric: Any) -> None:
    for row, label in zip(SCORES, LABELS, strict=True):
        metric.add(prediction=row, reference=label)
    assert metric.compute(quantile=1.1, alpha="0.1") == EXPECTED


def test_metrics_combine(metric: Any) -> None:
    both = evaluate.combine([metric, evaluate.load(metric_path(), cache_dir=metric.data_dir)], force_prefix=True)
    found = both.compute(predictions=SCORES, references=LABELS, quantile=1.1, alpha="0.1")
    assert {f"conformal_metric_{number}_coverage" for number in (0, 1)} <= set(found)
    assert found["conformal_metric_0_mean_set_size"] == EXPECTED["mean_set_size"]


def test_a_score_that_equals_the_quantile_stays_in_its_set(metric: Any) -> None:
    """0.1 in float32 is larger than 0.1."""
    found = metric.compute(predictions=[[0.1, 3.0], [3.0, 0.1]], references=[0, 1], quantile=0.1, alpha="0.1")
    assert (found["coverage"], found["mean_set_size"]) == (1, 1)


def test_optional_arguments_reach_the_table(metric: Any) -> None:
    found = metric.compute(
        predictions=SCORES,
        references=LABELS,
        quantile=math.inf,
        alpha="0.1",
        calibration_rows=99,
        groups=["a", "b", "c"] * 30,
        allow_empty=False,
    )
    assert found["group_coverage_gap"] == pytest.approx(0.1)
    assert found["band_low"] < found["coverage"] == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"quantile": math.nan, "alpha": "0.1"}, UsageError, "quantile"),
        ({"alpha": "0.1"}, UsageError, "`quantile` of compute"),
        ({"quantile": 1.0}, UsageError, "`alpha` of compute"),
        (
            {"quantile": 1.0, "alpha": "0.1", "predictions": [[0.5, 0.5], [1.0]]},
            DataError,
            "row 1 has 1 and row 0 has 2",
        ),
        ({"quantile": 1.0, "alpha": "0.1", "predictions": [[0.5, 0.5], [0.9, 0.1]]}, UsageError, "probabilities"),
        ({"quantile": 1.0, "alpha": "0.1", "references": [0, 2]}, DataError, "labels"),
        ({"quantile": 1.0, "alpha": "0.1", "references": None}, UsageError, "`references`"),
    ],
)
def test_bad_input_is_named(metric: Any, arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {"predictions": [[0.5, 1.5], [1.5, 0.5]], "references": [0, 1]} | arguments
    with pytest.raises(error, match=message):
        metric.compute(**{name: value for name, value in given.items() if value is not None})


def test_another_name_is_refused() -> None:
    with pytest.raises(UsageError, match="`name`"):
        metric_path("accuracy")


def test_loading_opens_no_connection(tmp_path: Path) -> None:
    script = f"""
import socket
def refuse(*arguments): raise SystemExit("a connection was opened")
socket.socket.connect = socket.create_connection = refuse
import evaluate, optimum_cpp
print(evaluate.load(optimum_cpp.metric_path(), cache_dir={str(tmp_path)!r}).name)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "conformal_metric"
