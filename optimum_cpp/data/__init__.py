"""From a data set to five disjoint roles: tasks, the pool of rows, duplicates, roles, ledger, manifest.

Rows flow one way: `load_pool` reads and checks them, `draw_roles` cleans the pool of duplicates and
draws the roles, `SplitManifest` writes down which row went where, and the `Ledger` remembers across
commands which rows a model has seen. The conformal role stays locked until the model is frozen.
"""

from __future__ import annotations

from .drawing import draw_calibration_roles, draw_roles, roles_from_datasets
from .duplicates import DuplicateFindings, clean_duplicates, duplicate_groups, near_duplicates
from .fingerprints import fingerprint, folded, text_digest
from .ledger import PURPOSES, ROLES, Ledger, check_unused
from .manifest import RoleRows, SplitManifest
from .pool import DatasetSource, Pool, load_pool
from .presets import PRESETS
from .roles import DataRoles, Examples, RoleSizes, roles_from_manifest
from .splits import parse_splits
from .tasks import ClassificationTask, encoder_task, resolve_task

__all__ = [
    "PRESETS",
    "PURPOSES",
    "ROLES",
    "ClassificationTask",
    "DataRoles",
    "DatasetSource",
    "DuplicateFindings",
    "Examples",
    "Ledger",
    "Pool",
    "RoleRows",
    "RoleSizes",
    "SplitManifest",
    "check_unused",
    "clean_duplicates",
    "draw_calibration_roles",
    "draw_roles",
    "duplicate_groups",
    "encoder_task",
    "fingerprint",
    "folded",
    "load_pool",
    "near_duplicates",
    "parse_splits",
    "resolve_task",
    "roles_from_datasets",
    "roles_from_manifest",
    "text_digest",
]
