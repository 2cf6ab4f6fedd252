"""Which files there are to load, and how they are named."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from unicodedata import normalize

from glassloop.core.errors import LoadError
from glassloop.knowledge.load.reading import reason_of

_HIDDEN = (".", "~$")  # "~$" begins the lock files of word processors


@dataclass(frozen=True, slots=True)
class File:
    """A file to load, and its name as a source."""

    path: Path
    source: str


@dataclass(slots=True)
class Found:
    """What `find` came to.

    Args:
        files: to load, by name.
        problems: what was given, or found, and is no file to load.
        folders: those that were walked to the end, as the sources in them begin: "docs/", or "" for the root itself.
        unseen: the beginnings of sources in folders that could not be read.
    """

    files: list[File] = field(default_factory=list[File])
    problems: list[LoadError] = field(default_factory=list[LoadError])
    folders: list[str] = field(default_factory=list[str])
    unseen: list[str] = field(default_factory=list[str])

    def covers(self, source: str) -> bool:
        """Whether a file of this name would have been found."""
        return source.startswith(tuple(self.folders)) and not source.startswith(tuple(self.unseen))


def find(paths: Iterable[str | PathLike[str]], root: str | PathLike[str] | None = None) -> Found:
    """The files that are given, and all in the folders that are given, folders in them too; sorted, each once.

    Hidden files and folders are left out, links to folders are not followed. It blocks.

    Args:
        paths: files and folders.
        root: sources are named by their path below it; default for each path the folder that it is in.
    """
    found = Found()
    named: dict[str, Path] = {}
    for given in paths:
        path = Path(os.path.abspath(given))
        try:
            below = path.relative_to(os.path.abspath(root) if root is not None else path.parent)
        except ValueError:
            found.problems.append(LoadError(str(given), f"is not in the root {root}: give another root."))
            continue
        for file in _files(path, _name(below), found):
            taken = named.setdefault(file.source, file.path)
            if taken == file.path:
                continue
            reason = f"has the same name as {taken}: give a root that is above both."
            found.problems.append(LoadError(str(file.path), reason))
    found.files = [File(path, source) for source, path in sorted(named.items())]
    return found


def _files(path: Path, name: str, found: Found) -> Iterator[File]:
    if not os.path.lexists(path):
        found.problems.append(LoadError(name, "does not exist: check the path."))
        return
    if not path.is_dir():
        yield File(path, name)
        return
    begin = f"{name}/" if name else ""
    found.folders.append(begin)
    none = True
    for folder, folders, files in os.walk(path, onerror=lambda error: _unread(error, path, begin, found)):
        here = begin + "".join(f"{_name(part)}/" for part in Path(folder).relative_to(path).parts)
        folders[:] = _seen(folders)
        for link in (link for link in folders if os.path.islink(os.path.join(folder, link))):
            why = "is a link to a folder, and those are not followed: give the folder itself."
            found.problems.append(LoadError(here + _name(link), why))
            found.unseen.append(f"{here}{_name(link)}/")
        for file in _seen(files):
            none = False
            yield File(Path(folder, file), here + _name(file))
    if none and not found.unseen:
        found.problems.append(LoadError(name or str(path), "holds no files: give another folder."))


def _unread(error: OSError, path: Path, begin: str, found: Found) -> None:
    """A folder that cannot be listed; what was in it has not vanished."""
    folder = Path(error.filename or path)
    name = begin + "".join(f"{_name(part)}/" for part in folder.relative_to(path).parts)
    found.unseen.append(name)
    found.problems.append(LoadError(name.rstrip("/") or str(path), reason_of(error, folder)))


def _seen(names: Sequence[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith(_HIDDEN))


def _name(path: str | Path) -> str:
    """A path as part of a source: the same on every system, and always text."""
    text = os.fsencode(Path(path).as_posix() if path != Path() else "").decode("utf-8", "replace")
    return normalize("NFC", text)
