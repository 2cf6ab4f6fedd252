"""Whether a path still names the file that a store has open."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from glassloop.core.errors import StoreError

_LOOK_S = 0.05  # a look costs a twentieth of a write where system calls are slow


class SameFile:
    """Notices that a file was deleted or replaced: on Unix one that is open takes writes still, and nobody finds them.

    Nor may a store open the file that is there now: beside it may lie the log of the old one, which SQLite would take
    for its own (sqlite.org/howtocorrupt.html, section 2.4).

    Args:
        path: of the file, for messages.
        resolved: gives the path where it is looked for.
    """

    def __init__(self, path: str, resolved: Callable[[], str]) -> None:
        self._path, self._resolved = path, resolved
        self._known: tuple[int, int] | None = None
        self._next_look = 0.0

    def opened(self) -> None:
        """The file is open now, if it was not before."""
        self._known = self._known or self._found()

    def watch(self) -> None:
        """`check`, unless that was done a moment ago."""
        if (now := time.monotonic()) >= self._next_look:
            self.check()
            self._next_look = now + _LOOK_S

    def check(self) -> None:
        """See that the path names the file that was opened, if any was.

        Raises:
            StoreError: it does not.
        """
        if self._known is not None and self._found() != self._known:
            raise StoreError(
                f"{self._path} was deleted or replaced while it was open: stop all that uses it and move it back, or "
                f"restore a backup and remove {self._path}-wal."
            )

    def _found(self) -> tuple[int, int] | None:
        """Device and inode, as SQLite tells files apart; None where there is no file."""
        try:
            found = os.stat(self._resolved())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # it is there, and not for us to see
            return self._known
        return found.st_dev, found.st_ino
