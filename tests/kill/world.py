"""What lies outside the program and survives it: the log of all effects, a service that honours keys, the files."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from places import File, Place


@dataclass(frozen=True)
class Entry:
    """One line of the log.

    Args:
        what: what happened: `enter` (a tool's function runs), `effect`, `decide`, `started`, ...
        tool: the tool, where one acted.
        id: the planned call.
        key: the idempotency key that the tool was given.
        life: the number of the process.
        more: other fields.
    """

    what: str
    tool: str = ""
    id: str = ""
    key: str = ""
    life: int = 0
    more: dict[str, Any] = field(default_factory=dict[str, Any])


class World:
    """A folder with everything that one round needs.

    Args:
        folder: where.
        life: the number of the process that acts, for the log.
        place: of the store; a file in the folder if not given.
    """

    def __init__(self, folder: Path, life: int = 0, place: Place | None = None) -> None:
        self.folder = folder
        self.life = life
        self.database = folder / "disk" / "store.db"
        self.place = place or File(self.database)
        self.service = folder / "service.db"
        self.log = folder / "world.log"
        self._file = -1

    @staticmethod
    def create(folder: Path, place: Place | None = None) -> World:
        """An empty world."""
        world = World(folder, place=place)
        folder.mkdir(parents=True, exist_ok=True)
        world.place.create()
        world.log.touch()
        with closing(sqlite3.connect(world.service)) as service:
            service.execute("PRAGMA journal_mode = WAL")
            service.execute("CREATE TABLE charges (key TEXT PRIMARY KEY, id TEXT NOT NULL)")
            service.execute("CREATE TABLE requests (key TEXT NOT NULL)")
            service.commit()
        return world

    @property
    def url(self) -> str:
        """The store's URL."""
        return self.place.url

    def write(self, what: str, tool: str = "", id: str = "", key: str = "", **more: Any) -> None:
        """Log something in one write, which a kill leaves whole or cuts off before its line's end."""
        if self._file < 0:
            self._file = os.open(self.log, os.O_RDWR | os.O_APPEND)
            size = os.lseek(self._file, 0, os.SEEK_END)
            if size and os.pread(self._file, 1, size - 1) != b"\n":
                os.write(self._file, b"\n")
        line = {"what": what, "tool": tool, "id": id, "key": key, "life": self.life, **more, "at": time.monotonic()}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def entries(self) -> list[Entry]:
        """Everything that was logged, in order; a line that a kill cut off did not happen."""
        found: list[Entry] = []
        for line in self.log.read_bytes().split(b"\n")[:-1]:
            try:
                said: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            head = {name: said.pop(name) for name in ("what", "tool", "id", "key", "life")}
            found.append(Entry(**head, more=said))
        return found

    def charge(self, key: str, id: str) -> None:
        """The service: charge once per key, however often it is asked."""
        with closing(sqlite3.connect(self.service, timeout=60)) as service:
            service.execute("PRAGMA synchronous = OFF")
            service.execute("INSERT INTO requests VALUES (?)", (key,))
            service.execute("INSERT OR IGNORE INTO charges VALUES (?, ?)", (key, id))
            service.commit()

    def charges(self) -> list[tuple[str, str]]:
        """Key and planned call of every charge."""
        with closing(sqlite3.connect(self.service)) as service:
            return service.execute("SELECT key, id FROM charges").fetchall()

    def requests(self) -> int:
        """How often the service was asked."""
        with closing(sqlite3.connect(self.service)) as service:
            return service.execute("SELECT count(*) FROM requests").fetchone()[0]
