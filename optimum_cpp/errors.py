"""The errors this package raises: one sentence each, with the exit code a command ends with."""

from __future__ import annotations


class CPPError(Exception):
    """Something about the model, the data or the contract stops the work. Commands exit with 1."""

    exit_code = 1


class UsageError(CPPError, ValueError):
    """An argument has a value that it cannot have. Commands exit with 2."""

    exit_code = 2


class DataError(CPPError, ValueError):
    """A data set, a row or a label is not what was expected."""


class ModelError(CPPError, ValueError):
    """A model or tokenizer cannot be scored or pruned as it is."""


class HubError(CPPError):
    """The Hugging Face Hub refuses, or cannot be reached."""


class ConformalRoleLocked(CPPError, RuntimeError):
    """The conformal role was read before the model was frozen, which would void the guarantee."""


class ContractViolation(CPPError):
    """Something that the reliability contract froze has moved."""


class MissingDependency(CPPError, ImportError):
    """An optional package is needed; the message names the extra that installs it."""
