"""Write an output folder beside its place and move it there whole: the old folder or the new one.

A process that is killed leaves its hidden staging folder behind, never half a result; the next one that
writes to the same place takes it away. Locks, which end with their process, say which ones are in use.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .errors import CPPError, UsageError
from .filenames import CONTRACT_NAME
from .swapping import swap

try:
    import fcntl
except ImportError:  # Windows has no such locks: there leftovers stay
    fcntl = None  # type: ignore[assignment]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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
        UsageError: as `check_output`, or somebody else filled the target meanwhile.
        CPPError: the disk is full.
    """
    path = check_output(target, overwrite=overwrite)
    with _saying_if_full(path), _staging_beside(path) as staging:
        check_output(path, overwrite=overwrite)  # an old folder may be back in its place now
        yield staging
        staging.chmod(0o755)
        _sync_tree(staging)
        if overwrite and check_output(path, overwrite=True).exists():
            _replace(staging, path)
        else:
            _place(staging, check_output(path, overwrite=overwrite))
        _sync(path.parent)


@contextmanager
def _staging_beside(path: Path) -> Iterator[Path]:
    """A locked, empty folder that is removed at the end; those of killed processes are removed first."""
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Nobody may take the new folder for abandoned before it has its own lock.
            with _locked(path.parent):
                _recover(path)
                for leftover in _beside(path, "partial"):
                    if _is_abandoned(leftover):
                        shutil.rmtree(leftover, ignore_errors=True)
                staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
                stack.enter_context(_locked(staging))
        except OSError as error:
            raise UsageError(f"Expected to write beside {str(path)!r}, but: {error.strerror}.") from error
        stack.callback(shutil.rmtree, staging, ignore_errors=True)
        yield staging


@contextmanager
def _saying_if_full(path: Path) -> Iterator[None]:
    """One sentence for a full disk, which each library reports by an error of its own."""
    try:
        yield
    except Exception as error:
        reasons = [os.strerror(code) for code in _FULL if getattr(error, "errno", None) == code]
        reasons += [os.strerror(code) for code in _FULL if os.strerror(code) in str(error)]
        if not reasons:
            raise
        raise CPPError(
            f"Expected room for the output beside {str(path)!r}, but: {reasons[0]}; nothing was written, so make room "
            "or choose another place."
        ) from error


def _place(staging: Path, path: Path) -> None:
    """Move to a place that is free, or an empty folder."""
    try:
        staging.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise UsageError(
            f"Expected the output folder {str(path)!r} to be empty still, but somebody else wrote to it meanwhile; "
            "choose another or pass --overwrite."
        ) from error


def _replace(staging: Path, path: Path) -> None:
    """Take the place of a folder, which is then where the staging folder was."""
    if swap(staging, path):
        return
    with _locked(path.parent):
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.old-", dir=path.parent))
        path.rename(aside / path.name)
        try:
            staging.rename(path)
        except OSError:
            (aside / path.name).rename(path)
            raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _recover(path: Path) -> None:
    """Put back a folder that a killed process moved aside in `_replace` and did not replace.

    The parent's lock is held here as there, so whatever stands aside now was left behind.
    """
    for aside in _beside(path, "old"):
        if not os.path.lexists(path) and (aside / path.name).is_dir():
            (aside / path.name).rename(path)
        shutil.rmtree(aside, ignore_errors=True)


def _beside(path: Path, kind: str) -> list[Path]:
    """The hidden folders of one kind that belong to an output folder."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.{kind}-*"))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, where the file system has locks."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_abandoned(folder: Path) -> bool:
    """Whether no living process holds the folder's lock; where there are no locks, nothing is abandoned."""
    if fcntl is None:
        return False
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


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
