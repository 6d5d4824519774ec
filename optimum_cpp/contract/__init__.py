"""The reliability contract: its claims, their canonical bytes, and what moved since."""

from .contract import Claims, ReliabilityContract
from .verification import Finding, file_claims, require, verify_folder, verify_manifest

__all__ = [
    "Claims",
    "Finding",
    "ReliabilityContract",
    "file_claims",
    "require",
    "verify_folder",
    "verify_manifest",
]
