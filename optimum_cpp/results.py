"""What a run found: one row for each model on the test role, the lambda grid, sparsity and cost."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .conformal import SetEvaluation
from .stages import Stage


@dataclass(frozen=True)
class ModelRow:
    """One model on the test role, at its own quantile.

    Attributes:
        model: 'dense', 'base' (lambda = 0) or 'chosen'.
        lam: weight of the saliency, None for the dense model.
        quantile: q-hat from the conformal role.
        counts: exact counts on the test role.
        band: covered counts that an exact split-conformal quantile gives in 99.9 % of draws.
    """

    model: str
    lam: str | None
    quantile: float
    counts: SetEvaluation
    band: tuple[int, int]

    @property
    def in_band(self) -> bool:
        """Whether the observed coverage lies in its acceptance band."""
        return self.band[0] <= self.counts.covered <= self.band[1]


@dataclass(frozen=True)
class CandidateRow:
    """One lambda on val_eval, with the rule's verdict."""

    lam: str
    counts: SetEvaluation
    eligible: bool
    reason: str


@dataclass(frozen=True)
class RunResults:
    """Everything that the summary, the card and the report show."""

    model: str
    dataset: str
    task: str
    labels: tuple[str, ...]
    base_pruner: str | None
    sparsity: str
    achieved_sparsity: float
    score: str
    alpha: str
    lam: str | None
    validation: tuple[CandidateRow, ...]
    dense_validation: SetEvaluation | None
    test: tuple[ModelRow, ...]
    verdicts: dict[str, dict[str, str]]
    matrices: dict[str, float]
    stages: tuple[Stage, ...]
    truncated_texts: dict[str, int]
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with the rates beside the counts they come from."""
        values = asdict(self)
        values["test"] = [row_values(row) for row in self.test]
        values["validation"] = [{**asdict(row), **_rates(row.counts)} for row in self.validation]
        return json.loads(json.dumps(values))  # type: ignore[no-any-return]

    def to_csv(self) -> str:
        """The test rows as comma-separated values."""
        columns = (
            "model",
            "lambda",
            "rows",
            "coverage",
            "band_low",
            "band_high",
            "mean_set_size",
            "accuracy",
            "ece",
        )
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for row in self.test:
            counts = row.counts
            low, high = (covered / counts.rows for covered in row.band)
            writer.writerow(
                [row.model, row.lam or "", counts.rows, counts.coverage, low, high, counts.mean_set_size,
                 counts.accuracy, counts.ece]
            )  # fmt: skip
        return text.getvalue()

    def summary(self) -> str:
        """The table that a run prints at its end."""
        lines = [model_table(self.test), ""] if self.test else []
        lines.append(
            f"score {self.score}, alpha {self.alpha}; a valid quantile covers within the band in 99.9 % of draws"
        )
        if self.validation:
            lines.append(f"{self.achieved_sparsity:.2%} of the prunable weights are zero; lambda {self.lam} is chosen")
        lines += [f"  lambda {row.lam}: {row.reason}" for row in self.validation]
        lines += [f"{name} {verdict['verdict']}: {verdict['reason']}" for name, verdict in self.verdicts.items()]
        lines += [f"{count} {role} texts were truncated" for role, count in self.truncated_texts.items() if count]
        lines += ["", _stage_table(self.stages)]
        return "\n".join(lines)


def row_values(row: ModelRow) -> dict[str, Any]:
    """A row as plain JSON values, with the rates beside the counts; the quantile as text, since it may be inf."""
    return {**asdict(row), **_rates(row.counts), "in_band": row.in_band, "quantile": str(row.quantile)}


def _rates(counts: SetEvaluation) -> dict[str, float]:
    return {
        "coverage": counts.coverage,
        "mean_set_size": counts.mean_set_size,
        "accuracy": counts.accuracy,
    }


def model_table(rows: Sequence[ModelRow]) -> str:
    """Coverage with its band, set size, accuracy and ECE of some models, as text."""
    header = f"{'test role':<22}{'coverage':>9}  {'band':<15}{'set size':>9}{'accuracy':>10}{'ECE':>7}{'empty':>7}"
    lines = [header, "-" * len(header)]
    for row in rows:
        counts = row.counts
        name = row.model if row.lam is None else f"{row.model} (lambda {row.lam})"
        low, high = (covered / counts.rows for covered in row.band)
        flag = "" if row.in_band else "  outside its band"
        lines.append(
            f"{name:<22}{counts.coverage:>9.4f}  [{low:.3f}, {high:.3f}] {counts.mean_set_size:>8.3f}"
            f"{counts.accuracy:>10.4f}{counts.ece:>7.3f}{counts.empty:>7}{flag}"
        )
    return "\n".join(lines)


def _stage_table(stages: Sequence[Stage]) -> str:
    lines = [f"{'stage':<34}{'seconds':>9}{'peak MiB':>10}"]
    lines += [f"{stage.name:<34}{stage.seconds:>9.1f}{stage.peak_memory_mib:>10.0f}" for stage in stages]
    lines.append(f"{'all stages':<34}{sum(stage.seconds for stage in stages):>9.1f}")
    return "\n".join(lines)
