"""A ledger in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from glassloop.core.ids import new_id
from glassloop.journal.ledger import DAY, Claim, Done, InDoubt, InFlight, Owner, Yours
from glassloop.stores.owner import is_gone_here, this_process
from glassloop.stores.redis.server import POLL_S, RedisServer, Script

_CLAIM = Script("""
    local time = tonumber(ARGV[1]) or now()
    local run, call, process, till, result, attempt, again = unpack(redis.call(
      'HMGET', KEYS[1], 'run', 'call', 'process', 'until', 'result', 'attempt', 'again'))
    if result and time < tonumber(till) then return {'done', run, call, result} end
    local mine = run == ARGV[2] and call == ARGV[3]
    if run and not result and not mine then
      return {'held', run, call, process, time < tonumber(till) and 'yes' or 'no'}
    end
    if attempt ~= ARGV[7] then again = run and not result and 'yes' or 'no' end
    redis.call('DEL', KEYS[1])
    redis.call('HSET', KEYS[1], 'run', ARGV[2], 'call', ARGV[3], 'process', ARGV[4],
      'until', string.format('%d', time + ARGV[5]), 'ttl', ARGV[6], 'attempt', ARGV[7], 'again', again)
    return {'yours', again}
""")
"""ARGV: now, run, call, process, lease, ttl, attempt. An attempt that is repeated has the answer that got lost."""

_SETTLE = Script("""
    local run, call, ttl = unpack(redis.call('HMGET', KEYS[1], 'run', 'call', 'ttl'))
    if run and (run ~= ARGV[2] or call ~= ARGV[3]) then return 0 end
    ttl = ttl or ARGV[5]
    redis.call('HSET', KEYS[1], 'run', ARGV[2], 'call', ARGV[3], 'process', ARGV[4], 'ttl', ttl, 'result', ARGV[6],
      'until', string.format('%d', (tonumber(ARGV[1]) or now()) + ttl))
    redis.call('PEXPIRE', KEYS[1], ttl)
    redis.call('PUBLISH', ARGV[7], KEYS[1])
    return 1
""")
"""ARGV: now, run, call, process, ttl unless claimed with another, result, channel."""

_RELEASE = Script("""
    local run, call, result = unpack(redis.call('HMGET', KEYS[1], 'run', 'call', 'result'))
    if not result and (ARGV[1] == '' or (run == ARGV[1] and call == ARGV[2])) then redis.call('DEL', KEYS[1]) end
    redis.call('PUBLISH', ARGV[3], KEYS[1])
""")
"""ARGV: run (empty: whoever's), call, channel."""

_LOOK = Script("""
    local process, till, result = unpack(redis.call('HMGET', KEYS[1], 'process', 'until', 'result'))
    if process and not result and (tonumber(ARGV[1]) or now()) < tonumber(till) then return process end
    return false
""")
"""ARGV: now. Answers with the process that is at it."""


class RedisLedger:
    """A ledger in a Redis database; on one host a claim also lapses as soon as the process that made it is gone.

    Args:
        server: the database.
        clock: UTC seconds, the same for all processes; None for the server's.
    """

    def __init__(self, server: RedisServer, clock: Callable[[], float] | None = None) -> None:
        self._server = server
        self._clock = clock

    async def claim(self, key: str, owner: Owner, lease: float, ttl: float = DAY) -> Claim:
        """See `Ledger.claim`."""
        process, attempt = str(this_process()), new_id("claim")
        times = int(lease * 1000), int(ttl * 1000)
        answer: list[Any] = await self._server.run(_CLAIM, [_key(key)], self._now(), *owner, process, *times, attempt)
        match answer:
            case [b"yours", again]:
                return Yours(again=again == b"yes")
            case [b"done", run, call, result]:
                return Done((run.decode(), call.decode()), result)
            case [_, run, call, holder, leased]:
                holds = leased == b"yes" and not await _is_gone(holder)
                return (InFlight if holds else InDoubt)((run.decode(), call.decode()))
            case _:
                raise AssertionError(answer)

    async def settle(self, key: str, owner: Owner, result: bytes) -> bool:
        """See `Ledger.settle`."""
        who, day = (*owner, str(this_process())), int(DAY * 1000)
        settled = await self._server.run(_SETTLE, [_key(key)], self._now(), *who, day, result, self._server.channel)
        return settled == 1

    async def release(self, key: str, owner: Owner | None = None) -> None:
        """See `Ledger.release`."""
        await self._server.run(_RELEASE, [_key(key)], *(owner or ("", "")), self._server.channel)

    async def wait(self, key: str) -> None:
        """See `Ledger.wait`."""
        async with self._server.news(_key(key)) as news:
            while process := await self._server.run(_LOOK, [_key(key)], self._now()):
                if await _is_gone(process):
                    return
                await news.wait(POLL_S)

    async def close(self) -> None:
        """See `Ledger.close`."""
        await self._server.close()

    def _now(self) -> int | str:
        return "" if self._clock is None else int(self._clock() * 1000)


def _key(key: str) -> str:
    return f"glassloop:ledger:{key}"


async def _is_gone(process: bytes) -> bool:
    name = process.decode()
    return name != str(this_process()) and await asyncio.to_thread(is_gone_here, name)
