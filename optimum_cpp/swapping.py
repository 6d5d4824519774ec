"""Exchange two folders in one step of the file system, so that their places are never empty."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

# From linux/fcntl.h and linux/fs.h.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def swap(one: Path, other: Path) -> bool:
    """Exchange two existing folders; False, with nothing done, where the system or file system cannot.

    Raises:
        OSError: the folders cannot be moved at all.
    """
    # The C library of Linux knows renameat2 since 2018.
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if exchange is None:
        return False
    if exchange(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(error, os.strerror(error), str(one), None, str(other))
