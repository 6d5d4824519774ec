"""How a served model does in each class and subgroup: what marginal coverage averages over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from .configuration import CPPConfig
from .conformal import acceptance_band
from .data.roles import take_rows
from .errors import DataError
from .evaluation import rows_to_evaluate
from .modeling import CPPModel

MOST_VALUES = 50
# Name of the grouping by true labels, which is always made.
CLASS = "class"


@dataclass(frozen=True)
class GroupAudit:
    """Exact counts on the rows of one group.

    Attributes:
        column: the column that the group comes from, or 'class'.
        value: the column's value there; None where rows have none.
        rows: number of rows.
        covered: rows whose set holds the true label.
        size_sum: sum of the set sizes.
        correct: rows whose most probable label is the true one.
        empty: sets of no label.
        interval: 95 % Clopper-Pearson interval of the group's coverage, as shares.
        target_inside: whether 1 - alpha lies in that interval.
    """

    column: str
    value: str | int | bool | None
    rows: int
    covered: int
    size_sum: int
    correct: int
    empty: int
    interval: tuple[float, float]
    target_inside: bool

    @property
    def coverage(self) -> float:
        """Share of the rows whose set holds the true label."""
        return self.covered / self.rows


@dataclass(frozen=True)
class Audit:
    """The whole and its groups.

    Attributes:
        alpha: allowed miscoverage, a decimal string.
        whole: all rows as one group.
        band: covered counts of the whole that a valid quantile yields in 99.9 % of draws.
        groups: classes first, in label order, then the values of each column.
    """

    alpha: str
    whole: GroupAudit
    band: tuple[int, int]
    groups: tuple[GroupAudit, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    def summary(self) -> str:
        """A table for people, and what it does and does not say."""
        low, high = (count / self.whole.rows for count in self.band)
        target = float(1 - Fraction(self.alpha))
        outside = sum(not group.target_inside for group in self.groups)
        head = (
            f"{'group':<40}{'rows':>7}{'coverage':>10}{'95 % interval':>18}{'set size':>10}{'accuracy':>10}{'empty':>7}"
        )
        return "\n".join(
            [
                head,
                _line("all rows", self.whole),
                *(_line(f"{group.column} = {_shown(group.value)}", group) for group in self.groups),
                "",
                f"all rows: coverage {self.whole.coverage:.4f}, acceptance band {low:.4f} to {high:.4f}",
                f"{outside} of {len(self.groups)} groups have an interval without {target:g} (marked *). Coverage is "
                "guaranteed on average over all rows, not in a group; with this many intervals about "
                f"{0.05 * len(self.groups):.1f} would miss it by chance if it held in each.",
            ]
        )


def audit(model: CPPModel, *, dataset: Any = None, by: Sequence[str] = (), config: CPPConfig | None = None) -> Audit:
    """Coverage, set size, accuracy and empty sets by class, and by the values of columns.

    Args:
        model: the served classifier; its contract holds.
        dataset: rows that the model has not seen; by default the test role of the split manifest.
        by: names of columns with text, whole numbers or truth values, of at most 50 values each.
        config: columns and splits of `dataset`, where they are not the usual ones.

    Raises:
        DataError: used rows, no test role, an unknown column, or one with too many or other values.
        ContractViolation: something that the contract froze has moved.
    """
    pool, rows = rows_to_evaluate(model, dataset=dataset, config=config, columns=by)
    kept = {name: [pool.columns[name][row] for row in rows.indices] for name in by}
    for name, values in kept.items():
        _check_values(name, values)
    examples, claim = take_rows(pool, rows), model.contract.claims.calibration
    scores = model.frozen.score(examples.texts, "audit")
    sets = model.frozen.sets(scores, model.contract.claims.quantile)  # (N, K)
    labels = np.asarray(examples.labels)
    outcome = _Outcome(
        sets[np.arange(len(labels)), labels], sets.sum(axis=1), scores.top_labels == labels, 1 - Fraction(claim.alpha)
    )
    groups = [outcome.group(CLASS, name, labels == column) for column, name in enumerate(pool.label_names)]
    for name, values in kept.items():
        for value in sorted(set(values), key=lambda value: (value is None, str(type(value)), value)):
            groups.append(outcome.group(name, value, np.array([other == value for other in values])))
    return Audit(
        claim.alpha,
        outcome.group("", "", np.ones(len(labels), dtype=bool)),
        acceptance_band(claim.n, claim.k, len(labels)),
        tuple(group for group in groups if group.rows),
    )


@dataclass(frozen=True)
class _Outcome:
    """What happened to N rows, (N,) each, and the coverage that is aimed at."""

    covered: npt.NDArray[np.bool_]
    sizes: npt.NDArray[np.integer]
    correct: npt.NDArray[np.bool_]
    target: Fraction

    def group(self, column: str, value: Any, members: npt.NDArray[np.bool_]) -> GroupAudit:
        from scipy.stats import binomtest

        rows, covered = int(members.sum()), int(self.covered[members].sum())
        found = binomtest(covered, rows).proportion_ci(0.95, method="exact") if rows else None
        low, high = (float(found.low), float(found.high)) if found else (0.0, 1.0)
        sizes = self.sizes[members]
        return GroupAudit(
            column,
            value,
            rows,
            covered,
            int(sizes.sum()),
            int(self.correct[members].sum()),
            int((sizes == 0).sum()),
            (low, high),
            low <= self.target <= high,
        )


def _check_values(name: str, values: Sequence[Any]) -> None:
    other = next((value for value in values if value is not None and not isinstance(value, (str, int, bool))), None)
    if other is not None:
        raise DataError(
            f"Expected column {name!r} to hold text, whole numbers or truth values, but it holds {other!r:.60}; put "
            "its rows into named groups first."
        )
    if len(set(values)) > MOST_VALUES:
        raise DataError(
            f"Expected column {name!r} to have at most {MOST_VALUES} values, but it has {len(set(values))}; put its "
            "rows into fewer groups first."
        )


def _line(name: str, group: GroupAudit) -> str:
    mark = " " if group.target_inside else "*"
    interval = f"{group.interval[0]:.4f} to {group.interval[1]:.4f}"
    return (
        f"{name[:39]:<40}{group.rows:>7}{group.coverage:>10.4f}{interval:>17}{mark}{group.size_sum / group.rows:>10.3f}"
        f"{group.correct / group.rows:>10.4f}{group.empty:>7}"
    )


def _shown(value: Any) -> str:
    return "(none)" if value is None else str(value)
