"""Write an output folder beside its place and move it there whole: the old folder or the new one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import UsageError


def check_output(target: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """The output folder's path, refused where something would be lost.

    Raises:
        UsageError: it exists and is not empty (without `overwrite`), or is not a folder.
    """
    path = Path(target)
    if path.exists() and not path.is_dir():
        raise UsageError(f"Expected the output {str(path)!r} to be a folder, but it is a file.")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise UsageError(
            f"Expected the output folder {str(path)!r} to be new or empty, but it is not; choose another or pass "
            "--overwrite."
        )
    return path


@contextmanager
def staged_directory(target: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """A folder beside the target that takes its place when the body ends without an error.

    Raises:
        UsageError: as `check_output`, or the parent cannot be written to.
    """
    path = check_output(target, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
    except OSError as error:
        raise UsageError(f"Expected to write beside {str(path)!r}, but: {error.strerror}.") from error
    try:
        yield staging
        staging.chmod(0o755)
        _sync_tree(staging)
        _replace(staging, check_output(path, overwrite=overwrite))
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replace(staging: Path, path: Path) -> None:
    if not path.exists():
        staging.rename(path)
        return
    # A folder that is not empty cannot be renamed over, so the old one steps aside first.
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.old-", dir=path.parent))
    path.rename(aside / path.name)
    try:
        staging.rename(path)
    except OSError:
        (aside / path.name).rename(path)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    _sync(path.parent)


def _sync_tree(folder: Path) -> None:
    for entry in folder.rglob("*"):
        _sync(entry)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
