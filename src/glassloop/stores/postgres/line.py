"""The one connection of a process that stays open: it shows that the process lives, tells news and hears them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from glassloop.core.encoding import digest
from glassloop.journal.feed import Feed
from glassloop.stores.codec import storable
from glassloop.stores.owner import this_process
from glassloop.stores.postgres.wire import WIRE_ERRORS, Wire

LEASE_S = 15.0
"""How long a process is believed to live after it was last heard of, by the database's clock."""

_BEAT_S = 5.0
_AGAIN_S = 1.0
_PAUSE_S = 0.01  # between two messages: what comes meanwhile shares the next
_CHANNEL = "glassloop"
_MOST = 400  # topics in a message, which may hold 8,000 bytes

_BEAT = """
    INSERT INTO glassloop_processes (process, until) VALUES ($1, clock_timestamp() + $2 * interval '1 second')
    ON CONFLICT (process) DO UPDATE SET until = excluded.until
"""
_SWEEP = "DELETE FROM glassloop_processes WHERE until < clock_timestamp() - interval '1 day'"

_log = logging.getLogger("glassloop.stores")


def topic_of(kind: str, name: str) -> str:
    """The topic of a run, a session, a ledger key: short, whatever the name."""
    return digest(f"{kind}/{storable(name)}".encode())[:16]


def lock_key(kind: str, name: str) -> int:
    """The number of an advisory lock on a topic."""
    return int.from_bytes(bytes.fromhex(topic_of(kind, name)), signed=True)


class Line:
    """Beats, tells and listens, and connects again where the connection broke.

    News may be lost: who waits for them also looks by itself now and then.

    Args:
        connect: opens a connection.
        name: of the server, for messages.
        feed: who waits for news in this process.
    """

    def __init__(self, connect: Callable[[], Awaitable[Wire]], name: str, feed: Feed) -> None:
        self._connect = connect
        self._name = name
        self._feed = feed
        self._news: dict[str, None] = {}
        self._stir = asyncio.Event()
        self._opening = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    async def open(self) -> None:
        """See that this process is known to live, and listen; does nothing where that is so."""
        if self._task is not None:
            return
        async with self._opening:
            if self._task is None:
                connection = await self._begin()
                await connection.execute(_SWEEP)
                self._task = asyncio.create_task(self._serve(connection), name="glassloop line")

    def tell(self, topic: str) -> None:
        """Let other processes know that `topic` moved on, in a moment."""
        self._news[topic] = None
        self._stir.set()

    async def close(self) -> None:
        """Tell what is to be told, and hang up."""
        self._closing = True
        self._stir.set()
        if self._task is not None:
            await self._task

    async def _begin(self) -> Wire:
        connection = await self._connect()
        try:
            await connection.add_listener(_CHANNEL, self._hear)
            connection.add_termination_listener(self._wake)
            await self._beat(connection)
        except BaseException:
            connection.terminate()
            raise
        for topic in self._feed.topics():  # what was told while nobody listened
            self._feed.publish(topic)
        return connection

    async def _serve(self, connection: Wire | None) -> None:
        told = False
        while not self._closing:
            try:
                connection = connection or await self._begin()
                told = False
                await self._talk(connection)
            except Exception as error:  # noqa: BLE001 - whatever happens, without it this process would count as gone
                _log.log(logging.DEBUG if told else logging.WARNING, "%s: the line broke: %s", self._name, error)
                told = True
                if connection is not None:
                    connection.terminate()
                    connection = None
                with suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN_S):
                        await self._stir.wait()
        if connection is not None:
            with suppress(*WIRE_ERRORS):
                await connection.close(timeout=2)

    async def _talk(self, connection: Wire) -> None:
        """Beat and tell until the line closes."""
        next_beat = time.monotonic() + _BEAT_S
        while not self._closing or self._news:
            with suppress(TimeoutError):
                async with asyncio.timeout(next_beat - time.monotonic()):
                    await self._stir.wait()
            self._stir.clear()
            if connection.is_closed():
                raise ConnectionResetError("the connection was closed")
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + _BEAT_S
                await self._beat(connection)
            await self._tell(connection)
            if not self._closing:
                await asyncio.sleep(_PAUSE_S)

    async def _tell(self, connection: Wire) -> None:
        while self._news:
            topics = list(self._news)[:_MOST]
            await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, " ".join(topics))
            for topic in topics:
                self._news.pop(topic, None)

    async def _beat(self, connection: Wire) -> None:
        await connection.execute(_BEAT, str(this_process()), LEASE_S)

    def _hear(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        if pid != connection.get_server_pid():  # our own news are told in this process already
            for topic in str(payload).split():
                self._feed.publish(topic)

    def _wake(self, connection: Any) -> None:
        self._stir.set()
