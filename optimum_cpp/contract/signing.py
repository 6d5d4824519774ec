"""Detached signatures of a contract, so that not only accidents are noticed but malice too.

The contract's claims cover every file, the rows and the numbers by digests, so the contract file is all
that needs a signature. Format and keys are those of the `model-signing` package (Sigstore bundles).
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import ContractViolation, MissingDependency, UsageError
from ..filenames import CONTRACT_NAME, SIGNATURE_NAME
from .findings import Finding

FIELD = "signature"


def check_key(private_key: str | os.PathLike[str]) -> None:
    """Refuse a key that cannot sign, before anything long is begun.

    Raises:
        UsageError: no readable elliptic-curve private key in PEM form.
        MissingDependency: the `signing` extra is not installed.
    """
    _signer(private_key)


def sign_contract(directory: str | os.PathLike[str], private_key: str | os.PathLike[str]) -> Path:
    """Write `reliability_contract.json.sig` beside the contract of a folder; works offline.

    Args:
        directory: a folder with a contract.
        private_key: PEM file of an elliptic-curve key (P-256, P-384 or P-521) without a password.

    Returns:
        The signature's file.

    Raises:
        ContractViolation: the folder holds no contract.
        UsageError: no readable elliptic-curve private key in PEM form.
        MissingDependency: the `signing` extra is not installed.
    """
    signer, signature = _signer(private_key), Path(directory) / SIGNATURE_NAME
    with _contract_alone(directory) as contract:
        signer.sign(contract, signature)
    return signature


def verify_signature(
    directory: str | os.PathLike[str],
    signature: str | os.PathLike[str] | None = None,
    *,
    public_key: str | os.PathLike[str] | None = None,
    identity: str | None = None,
    identity_provider: str | None = None,
) -> Finding:
    """Whether a signature is that of the folder's contract, by a key or an identity that the caller trusts.

    Args:
        directory: a folder with a contract.
        signature: its file; by default the one in the folder.
        public_key: PEM file of the signer's public key.
        identity: in place of a key, the identity that a Sigstore signature must name; needs a network.
        identity_provider: who vouches for that identity.

    Raises:
        ContractViolation: the folder holds no contract.
        UsageError: no signature file, neither key nor identity or both, or a key that cannot be read.
        MissingDependency: the `signing` extra is not installed.
    """
    path = Path(signature) if signature is not None else Path(directory) / SIGNATURE_NAME
    if (public_key is None) == (identity is None) or (identity is None) != (identity_provider is None):
        raise UsageError(
            "Expected either argument `public_key`, or `identity` with `identity_provider`, to check a signature."
        )
    if not path.is_file():
        raise UsageError(f"Expected argument `signature` to be a file, but {str(path)!r} is not.")
    verifier = _package("verifying").Config()
    if public_key is not None:
        with _reading_key("public_key", public_key):
            verifier.use_elliptic_key_verifier(public_key=Path(public_key))
    else:
        verifier.use_sigstore_verifier(identity=identity, oidc_issuer=identity_provider)
    with _contract_alone(directory) as contract, _quiet():
        try:
            verifier.verify(contract, path)
        except Exception as error:  # the package and its parsers raise many kinds for what is no valid signature
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            return Finding(FIELD, False, f"a signature of {CONTRACT_NAME} by the given signer", reason)
    return Finding(FIELD, True)


def _signer(private_key: str | os.PathLike[str]) -> Any:
    config = _package("signing").Config()
    with _reading_key("sign", private_key):
        config.use_elliptic_key_signer(private_key=Path(private_key))
    return config


@contextmanager
def _reading_key(name: str, path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, TypeError, AttributeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0]
        raise UsageError(
            f"Expected argument `{name}` to be a PEM file of an elliptic-curve key without a password, but "
            f"{os.fspath(path)!r}: {reason}"
        ) from error


@contextmanager
def _contract_alone(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """A copy of the contract in a folder of its own: in the Hub's cache the file itself is a link."""
    source = Path(directory) / CONTRACT_NAME
    if not source.is_file():
        raise ContractViolation(f"Expected {str(directory)!r} to hold {CONTRACT_NAME}, but it does not.")
    with TemporaryDirectory() as folder:
        yield Path(shutil.copyfile(source, Path(folder) / CONTRACT_NAME))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that the package's libraries log about what a finding says anyway."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _package(module: str) -> Any:
    """A module of `model-signing`, which loads much, so only when it is needed."""
    import importlib

    try:
        return importlib.import_module(f"model_signing.{module}")
    except ImportError as error:
        raise MissingDependency(
            f'Signatures need the package model-signing ({error}): pip install "optimum-cpp[signing]".'
        ) from error
