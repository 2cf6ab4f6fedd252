"""The lock of a session in Redis: a queue of runs, whose first holds the session.

Each run's place names its driver (a token), the process, and when it lapses unless the driver shows that it lives, by
the server's clock. On one host it also lapses as soon as the process has ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import NamedTuple
from weakref import WeakValueDictionary

from glassloop.core.errors import Fenced, StoreError
from glassloop.core.ids import new_id
from glassloop.memory.session import SessionBusy, WhenBusy
from glassloop.stores.owner import is_gone_here, this_process
from glassloop.stores.redis.server import POLL_S, RedisServer, Script

_LEASE_MS = 15_000
_BEAT_S = 5.0

_PLACES = """
local queue, places, run, token = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local function place(of)  -- until when, whose
  local lapses, token, process = string.match(redis.call('HGET', places, of) or '', '^(%d+) (%S+) (%S+)$')
  return tonumber(lapses), token, process
end

local function first()  -- of those that have not lapsed: run, token, process
  while true do
    local run = redis.call('LINDEX', queue, 0)
    if not run then return nil end
    local lapses, token, process = place(run)
    if lapses and lapses > now() then return run, token, process end
    redis.call('LPOP', queue)
    redis.call('HDEL', places, run)
  end
end

local function keep()  -- the whole queue is forgotten once everybody in it has lapsed
  redis.call('HSET', places, run, string.format('%d %s %s', now() + ARGV[4], token, ARGV[3]))
  redis.call('PEXPIRE', queue, ARGV[4])
  redis.call('PEXPIRE', places, ARGV[4])
end

local function answer(word)
  return {word, first()}
end
"""

_ENTER = Script(
    f"""{_PLACES}
    local _, before = place(run)
    if ARGV[5] == 'refuse' and not before and first() then return answer('busy') end
    if not before then redis.call('RPUSH', queue, run) end
    keep()
    if before then redis.call('PUBLISH', ARGV[6], before) end
    return answer('ok')
    """
)
"""ARGV: run, token, process, lease, `queue` or `refuse`, channel. Answers with the first place, `busy` if refused."""

_KEEP = Script(
    f"""{_PLACES}
    local _, mine = place(run)
    if mine ~= token then return false end
    keep()
    return answer('ok')
    """
)
"""ARGV: run, token, process, lease. Answers with the first place, or nothing where the run's is another's by now."""

_LEAVE = Script(
    f"""{_PLACES}
    local _, mine = place(run)
    if mine == token then
      redis.call('LREM', queue, 1, run)
      redis.call('HDEL', places, run)
      local _, now_first = first()
      if now_first then redis.call('PUBLISH', ARGV[3], now_first) end
    end
    """
)
"""ARGV: run, token, channel."""


class _First(NamedTuple):
    """The first place of a queue."""

    run_id: str
    token: str
    process: str


@dataclass
class _Place:
    """A driver's place in the queue of a session; those of this process enter and leave it in `order`."""

    session: str
    run_id: str
    order: asyncio.Lock
    token: str = field(default_factory=partial(new_id, "lock"))
    process: str = field(default_factory=lambda: str(this_process()))
    lost: bool = False
    fence: Callable[[], None] = lambda: None

    @property
    def keys(self) -> tuple[str, str]:
        """Of the queue and of the places in it."""
        return f"glassloop:{{{self.session}}}:queue", f"glassloop:{{{self.session}}}:places"


class RedisLocks:
    """The locks of all sessions in a Redis database.

    Args:
        server: the database.
    """

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._places: dict[str, _Place] = {}
        self._orders: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, session: str, run_id: str, when_busy: WhenBusy) -> AsyncGenerator[None]:
        """See `SessionStore.lock`.

        Raises:
            Fenced: inside the block too, where the place was lost: another driver of the run has it, or nothing was
                heard of this one for 15 s and another run has begun.
        """
        order = self._orders.setdefault((os.getpid(), session), asyncio.Lock())
        place = _Place(session, run_id, order)
        self._places[place.token] = place
        try:
            await self._enter(place, when_busy)
            async with _Fence(place):
                yield
        except BaseException:  # an `_enter` that was cancelled goes on to its end
            self._abandon(place)
            raise
        if self._forget(place):
            try:
                await self._server.run(*self._leave(place), order=place.order)
            except StoreError:
                self._post_leave(place)

    def abandon_all(self) -> None:
        """Give up every lock and every place in a queue."""
        for place in list(self._places.values()):
            self._abandon(place)

    def _abandon(self, place: _Place) -> None:
        """Give a place up without waiting, for this may be called where nothing can be awaited."""
        if self._forget(place):
            self._post_leave(place)

    def _post_leave(self, place: _Place) -> None:
        with suppress(StoreError):  # closed meanwhile: the place lapses
            self._server.post(*self._leave(place), order=place.order)

    def _forget(self, place: _Place) -> bool:
        """Stop keeping a place; False if that was done already, or the process was forked from the one whose it is."""
        self._server.end(place.token)
        return self._places.pop(place.token, None) is not None and place.process == str(this_process())

    async def _enter(self, place: _Place, when_busy: WhenBusy) -> None:
        """Take a place in the queue, or the run's own where it has one, and wait until it is the first."""
        arguments = (place.run_id, place.token, place.process, _LEASE_MS, when_busy, self._server.channel)
        while True:
            word, first = _read(await self._server.run(_ENTER, place.keys, *arguments, order=place.order))
            if word == "ok":
                break
            if not await self._cleared(place, first):
                raise SessionBusy(place.session, first.run_id)
        self._server.begin(place.token, partial(self._beat, place))
        if first.token != place.token:
            await self._turn(place)

    async def _turn(self, place: _Place) -> None:
        async with self._server.news(place.token) as news:
            while True:
                first = await self._keep(place)
                if first is None:
                    raise _lost(place)
                if first.token == place.token:
                    return
                if not await self._cleared(place, first):
                    await news.wait(POLL_S)

    async def _cleared(self, place: _Place, first: _First) -> bool:
        """Void the first place if its process has ended; whether it had."""
        if first.process == place.process or not await asyncio.to_thread(is_gone_here, first.process):
            return False
        await self._server.run(*self._leave(replace(place, run_id=first.run_id, token=first.token)))
        return True

    def _leave(self, place: _Place) -> tuple[Script, tuple[str, str], str, str, str]:
        return _LEAVE, place.keys, place.run_id, place.token, self._server.channel

    async def _keep(self, place: _Place) -> _First | None:
        """Show that the driver lives; the first place of the queue, or None if the driver has no place any more."""
        arguments = (place.run_id, place.token, place.process, _LEASE_MS)
        answer = await self._server.run(_KEEP, place.keys, *arguments)
        return _read(answer)[1] if answer else None

    async def _beat(self, place: _Place) -> None:
        """Show every few seconds that the driver lives, until the place is lost."""
        while True:
            await asyncio.sleep(_BEAT_S)
            try:
                if await self._keep(place) is None:
                    break
            except StoreError:
                pass  # nobody else gets a place there either; when the server is back, it says who has it
        place.lost = True
        self._server.tell(place.token)
        place.fence()


class _Fence:
    """Cuts its block off when the place is lost. (No generator: it must not be closed before the one that holds it.)"""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._scope = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()
        self._inside = True

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        self._place.fence = self._cut_off_from_afar
        if self._place.lost:
            self._cut_off()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside = False
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            raise _lost(self._place) from None

    def _cut_off_from_afar(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cut_off)

    def _cut_off(self) -> None:
        if self._inside:
            self._scope.reschedule(self._loop.time())


def _read(answer: Sequence[bytes]) -> tuple[str, _First]:
    word, *first = (part.decode() for part in answer)
    return word, _First(*first)


def _lost(place: _Place) -> Fenced:
    return Fenced(
        f"Run {place.run_id} has lost session {place.session!r}: another driver took the run over, or this one was "
        f"silent for {_LEASE_MS / 1_000:g} s."
    )
