"""The reliability contract: its claims, their canonical bytes, and what moved since."""

from .contract import CONTRACT_NAME, Claims, ReliabilityContract
from .verification import Finding, file_claims, require, verify_folder

__all__ = [
    "CONTRACT_NAME",
    "Claims",
    "Finding",
    "ReliabilityContract",
    "file_claims",
    "require",
    "verify_folder",
]
