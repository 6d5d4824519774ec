"""Calibration-Preserving Pruning: sparse classifiers with valid prediction sets and a contract.

The public names are loaded on first use, so that `import optimum_cpp` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .auditing import audit
    from .configuration import CPPConfig
    from .contract import ReliabilityContract
    from .errors import ConformalRoleLocked, ContractViolation, CPPError
    from .evaluation import evaluate
    from .metrics import metric_path
    from .metrics.metric import ConformalMetric
    from .modeling import CPPModelForCausalLM, CPPModelForSequenceClassification, CPPResult
    from .monitoring import monitor
    from .pruner import CalibrationPreservingPruner, CPPPruner, get_data_roles
    from .recalibration import recalibrate
    from .registry import BASE_PRUNERS, SCORES
    from .training import SparsityCallback

_HOMES = {
    "BASE_PRUNERS": "registry",
    "CPPConfig": "configuration",
    "CPPError": "errors",
    "CPPModelForCausalLM": "modeling",
    "CPPModelForSequenceClassification": "modeling",
    "CPPPruner": "pruner",
    "CPPResult": "modeling",
    "CalibrationPreservingPruner": "pruner",
    "ConformalMetric": "metrics.metric",
    "ConformalRoleLocked": "errors",
    "ContractViolation": "errors",
    "ReliabilityContract": "contract",
    "SCORES": "registry",
    "SparsityCallback": "training",
    "audit": "auditing",
    "evaluate": "evaluation",
    "get_data_roles": "pruner",
    "metric_path": "metrics",
    "monitor": "monitoring",
    "recalibrate": "recalibration",
}

__all__ = [
    "BASE_PRUNERS",
    "SCORES",
    "CPPConfig",
    "CPPError",
    "CPPModelForCausalLM",
    "CPPModelForSequenceClassification",
    "CPPPruner",
    "CPPResult",
    "CalibrationPreservingPruner",
    "ConformalMetric",
    "ConformalRoleLocked",
    "ContractViolation",
    "ReliabilityContract",
    "SparsityCallback",
    "audit",
    "evaluate",
    "get_data_roles",
    "metric_path",
    "monitor",
    "recalibrate",
]


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
