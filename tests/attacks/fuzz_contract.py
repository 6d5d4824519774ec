"""Fuzz target of the contract reader: whatever the bytes, it answers with a contract or a `ContractViolation`.

    python tests/attacks/fuzz_contract.py CORPUS_FOLDER -max_total_time=30

Options are libFuzzer's. A crash leaves its bytes in a file named crash-…; put them into `tests/attacks/crashes/`,
where a test reads them for ever after.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["optimum_cpp"]):
    from optimum_cpp.contract import ReliabilityContract
    from optimum_cpp.errors import ContractViolation


def read(data: bytes) -> None:
    """One input."""
    try:
        contract = ReliabilityContract.from_bytes(data)
    except ContractViolation:
        return
    assert ReliabilityContract.from_bytes(contract.to_bytes()).digest == contract.digest


if __name__ == "__main__":
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()
