"""Write an output folder beside its place and move it there whole: the old folder or the new one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import UsageError
from .filenames import CONTRACT_NAME


def check_output(
    target: str | os.PathLike[str], *, overwrite: bool, keep: Iterable[str | os.PathLike[str] | None] = ()
) -> Path:
    """The output folder's real path, refused where something would be lost.

    Args:
        target: where the folder is to stand.
        overwrite: whether an earlier output folder may be replaced; nothing else ever is.
        keep: model folders and data files that must not lie in the folder (Hub ids are ignored).

    Raises:
        UsageError: the target is not a folder, is not empty (without `overwrite`), is no output folder,
            holds the working directory or something to keep, or cannot be written.
    """
    if not os.fspath(target):
        raise UsageError("Expected the output to be the name of a folder, but it is empty.")
    path = Path(os.path.realpath(target))
    if Path(os.path.realpath(".")).is_relative_to(path):
        raise UsageError(f"Expected the output to be a folder of its own, but {str(path)!r} is where you work.")
    for kept in keep:
        if kept is not None and os.path.exists(kept) and Path(os.path.realpath(kept)).is_relative_to(path):
            raise UsageError(f"Expected the output to leave {str(kept)!r} alone, but it would replace it.")
    try:
        _check_place(path, overwrite)
    except OSError as error:
        raise UsageError(f"Expected to write the output {str(path)!r}, but: {error.strerror}.") from error
    return path


def _check_place(path: Path, overwrite: bool) -> None:
    if os.path.lexists(path):
        if not path.is_dir():
            raise UsageError(f"Expected the output {str(path)!r} to be a folder, but it is a file.")
        if any(path.iterdir()):
            if not overwrite:
                raise UsageError(
                    f"Expected the output folder {str(path)!r} to be new or empty, but it is not; choose another or "
                    "pass --overwrite."
                )
            if not (path / CONTRACT_NAME).is_file():
                raise UsageError(
                    f"Expected to overwrite an earlier output folder, but {str(path)!r} holds no {CONTRACT_NAME}; "
                    "choose another folder or empty it yourself."
                )
    parent = next(folder for folder in path.parents if os.path.lexists(folder))
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"Expected to write the output {str(path)!r}, but {str(parent)!r} cannot be written in.")


@contextmanager
def staged_directory(target: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """A folder beside the target that takes its place when the body ends without an error.

    Raises:
        UsageError: as `check_output`.
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
