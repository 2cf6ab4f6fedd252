"""Sessions in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from glassloop.core.encoding import dumps
from glassloop.core.messages import Message
from glassloop.memory.session import WhenBusy, check_limit
from glassloop.stores.codec import MESSAGE_VERSION, pack, storable
from glassloop.stores.messages import read_message
from glassloop.stores.redis.locks import RedisLocks
from glassloop.stores.redis.server import RedisServer, Script

_CHUNK = 500

_APPEND = Script("""
    if redis.call('SADD', KEYS[2], ARGV[1]) == 1 then
      for number = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[number]) end
    end
""")


class RedisSessions:
    """Sessions in a Redis database: a list of messages each, and the set of runs that have been appended.

    Args:
        server: the database.
    """

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._locks = RedisLocks(server)

    async def load(self, session: str, limit: int | None = None) -> list[Message]:
        """See `SessionStore.load`."""
        check_limit(limit)
        session = storable(session)
        messages: list[Message] = []
        end: int = await self._server.command("LLEN", _messages(session))
        while end and (
            limit is None or len(messages) < limit
        ):  # newest first: a window reads little more than it shows
            start = max(0, end - (_CHUNK if limit is None else min(_CHUNK, limit - len(messages))))
            stored: list[bytes] = await self._server.command("LRANGE", _messages(session), start, end - 1)
            read = [_read(session, position, each) for position, each in enumerate(stored, start)]
            messages[:0] = [message for message in read if message is not None]
            end = start
        return messages

    async def append(self, session: str, run_id: str, messages: Sequence[Message]) -> None:
        """See `SessionStore.append`."""
        session = storable(session)
        keys = (_messages(session), f"glassloop:{{{session}}}:runs")
        await self._server.run(_APPEND, keys, run_id, *map(_stored, messages))

    def lock(self, session: str, run_id: str, when_busy: WhenBusy = "queue") -> AbstractAsyncContextManager[None]:
        """See `SessionStore.lock`."""
        return self._locks.hold(storable(session), run_id, when_busy)

    async def close(self) -> None:
        """See `SessionStore.close`."""
        self._locks.abandon_all()
        await self._server.close()


def _messages(session: str) -> str:
    return f"glassloop:{{{session}}}:messages"


def _stored(message: Message) -> bytes:
    packed = pack(dumps(message))
    return b"%d %s" % (MESSAGE_VERSION, packed.encode() if isinstance(packed, str) else packed)


def _read(session: str, position: int, stored: bytes) -> Message | None:
    version, _, packed = stored.partition(b" ")
    known = version.isdigit()
    text = packed.decode("utf-8", "replace") if packed.startswith(b"{") else packed
    return read_message(session, position, int(version) if known else 0, text if known else b"")
