"""The reliability contract: its claims, their canonical bytes, and what moved since."""

from .claims import Claims
from .contract import ReliabilityContract
from .findings import Finding, compare, require
from .folder import bytes_to_hash, file_claims, verify_folder, verify_manifest, verify_weights

__all__ = [
    "Claims",
    "Finding",
    "ReliabilityContract",
    "bytes_to_hash",
    "compare",
    "file_claims",
    "require",
    "verify_folder",
    "verify_manifest",
    "verify_weights",
]
