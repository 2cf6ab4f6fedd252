"""The bytes of a file, or in words why there are none."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 50_000_000
"""The largest file that is loaded, in bytes."""


class Unreadable(Exception):
    """Why a file cannot be loaded, to be read after its name: "is empty: ..."."""


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a file.

    Args:
        path: the file; links are followed.
        limit: the most that is read, in bytes.

    Raises:
        Unreadable: it is missing, empty, too large, no regular file, or not for us to read.
    """
    try:
        # A pipe would hold the opener up until somebody writes, so it is not waited for.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise Unreadable("is no regular file: give a file or a folder.")
            data = b"" if found.st_size > limit else file.read(limit + 1)
    except OSError as error:
        raise Unreadable(reason_of(error, path)) from error
    if found.st_size > limit or len(data) > limit:
        raise Unreadable(f"is too large ({found.st_size / 1e6:,.0f} MB, at most {limit / 1e6:,.0f} MB): split it.")
    if not data:
        raise Unreadable("is empty: write something into it, or leave it out.")
    return data


def reason_of(error: OSError, path: Path) -> str:
    """What an error of the system means, to be read after the name."""
    match error.errno:
        case errno.ENOENT if path.is_symlink():
            return "is a link to a file that is not there: correct or remove the link."
        case errno.ENOENT | errno.ENOTDIR:
            return "does not exist: check the path."
        case errno.ELOOP:
            return "is a link that leads back to itself: correct or remove the link."
        case errno.EACCES | errno.EPERM:
            return "may not be read by this user: give read permission."
        case errno.EISDIR:
            return "is a folder, not a file."
        case errno.ENXIO:
            return "is no regular file: give a file or a folder."
        case _:
            return f"cannot be read ({(error.strerror or type(error).__name__).lower()})."
