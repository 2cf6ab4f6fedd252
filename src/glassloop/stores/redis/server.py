"""A Redis server: scripts that are retried within bounds, news from other processes, one sentence for what is wrong.

Plain Redis from version 5 on, or what speaks its protocol; no modules.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from glassloop.core.errors import StoreError
from glassloop.journal.feed import Feed, Signal
from glassloop.stores.loop_thread import LoopThread
from glassloop.stores.redis.errors import check_url, explain, is_cut_off

POLL_S = 1.0
"""How often one who waits looks again, whatever news there are: news may get lost, and a process may die silently."""

_FORMAT = 1
_PATIENCE_S = 2.5  # a server that restarts is back by then
_PAUSE_S = 0.05
_INSIST_S = 15.0
_CONNECT_S, _ANSWER_S = 2.0, 5.0
_CONNECTIONS = 16

_log = logging.getLogger("glassloop.stores")

Argument = str | bytes | int


class Script:
    """A Lua script, which Redis runs as one step.

    Args:
        code: the script; `now` is a function that gives the server's UTC milliseconds.
    """

    def __init__(self, code: str) -> None:
        self.code = f"{_NOW}{code}"
        self.digest = hashlib.sha1(self.code.encode(), usedforsecurity=False).hexdigest()


_NOW = """
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
"""
_OPEN = Script("redis.call('SETNX', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])")


class RedisServer:
    """The connections to one database of a Redis server, used from any thread or event loop.

    Args:
        url: `redis://[user:password@]host[:port][/database]`, or `rediss://` with TLS, where `?ssl_ca_certs=file.pem`
            and redis-py's other `ssl_` options may follow.

    Raises:
        ConfigurationError: not such a URL, or redis-py is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url, host = check_url(url)
        self.channel = f"glassloop:{self.url.rpartition('/')[2]}"
        self._feed = Feed()
        make = partial(_Connections, url, f"Redis at {host}", self.channel, self._feed.publish)
        self._thread = LoopThread("glassloop-redis", f"The store {self.url}", make)
        weakref.finalize(self, self._thread.stop).atexit = False

    async def run(
        self, script: Script, keys: Sequence[str], *arguments: Argument, order: asyncio.Lock | None = None
    ) -> Any:
        """Run a script and return its answer; it may be run twice, if an answer got lost.

        Args:
            script: what to run.
            keys: its KEYS.
            arguments: its ARGV.
            order: scripts that share one are run in the order in which they came.

        Raises:
            StoreError: the server does not answer, refuses, or the store is closed.
            ConfigurationError: it cannot be used as it is configured.
        """
        return await self._thread.call(partial(_run, script, keys, arguments, order))

    def post(self, script: Script, keys: Sequence[str], *arguments: Argument, order: asyncio.Lock) -> None:
        """`run` without waiting; while the server is away, again and again for some seconds."""
        self._thread.post(partial(_insist, partial(_run, script, keys, arguments, order)))

    async def command(self, *words: Argument) -> Any:
        """Do one command; raises like `run`."""
        return await self._thread.call(lambda connections: connections.retried(partial(_command, words)))

    @asynccontextmanager
    async def news(self, topic: str) -> AsyncGenerator[Signal]:
        """A signal that is set when a script publishes `topic` on the channel; see `POLL_S`."""
        with self._feed.subscribe(topic) as signal:
            await self._thread.call(_Connections.listen)
            yield signal

    def tell(self, topic: str) -> None:
        """Set the signals of `topic` in this process."""
        self._feed.publish(topic)

    def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let `work` go on in the background until `end(name)`, however busy the caller's event loop is."""

        async def start(connections: _Connections) -> None:
            connections.begin(name, work)

        self._thread.post(start)

    def end(self, name: str) -> None:
        """End what `begin` began."""

        async def stop(connections: _Connections) -> None:
            task = connections.background.get(name)
            if task is not None:
                task.cancel()

        with suppress(StoreError):  # closed: it has ended
            self._thread.post(stop)

    async def close(self) -> None:
        """Finish what was begun and close the connections; idempotent."""
        await self._thread.close()


class _Connections:
    """What lives on the thread of a `RedisServer`."""

    def __init__(self, url: str, place: str, channel: str, publish: Callable[[str], None]) -> None:
        self._url, self._place, self._channel, self._publish = url, place, channel, publish
        self._client: Any = None
        self._opened = False
        self._listener: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self.background: dict[str, asyncio.Task[None]] = {}

    @property
    def client(self) -> Any:
        """The redis-py client, made when first needed: its import takes time."""
        if self._client is None:
            from redis.asyncio import BlockingConnectionPool, Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff

            made: Any = BlockingConnectionPool
            self._client = Redis(
                connection_pool=made.from_url(
                    self._url,
                    max_connections=_CONNECTIONS,
                    timeout=None,
                    protocol=2,
                    driver_info=None,  # it would look for its own version on the disk
                    retry=Retry(NoBackoff(), 0),  # redis-py nests its retries; ours are in `retried` alone
                    socket_connect_timeout=_CONNECT_S,
                    socket_timeout=_ANSWER_S,
                )
            )
        return self._client

    async def retried(self, do: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """`do(client)`, again for a while where the connection failed."""
        from redis.exceptions import RedisError

        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + _PATIENCE_S, _PAUSE_S
        while True:
            try:
                await self._open()
                return await do(self.client)
            except (RedisError, OSError) as error:
                if not is_cut_off(error) or loop.time() + pause > deadline:
                    raise explain(self._place, error) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.8)

    def begin(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """See `RedisServer.begin`."""
        task = self.background[name] = asyncio.create_task(work(), name=name)
        task.add_done_callback(lambda _: self.background.pop(name, None))

    async def _open(self) -> None:
        """See, once, that the server takes writes, and that what it holds can be read."""
        if not self._opened:
            found = int(await _evaluate(_OPEN, ["glassloop:format"], [_FORMAT], self.client))
            if found > _FORMAT:
                raise StoreError(
                    f"A newer Glassloop wrote to {self._place} (format {found}, this one knows {_FORMAT}): "
                    "upgrade it here."
                )
            self._opened = True

    async def listen(self) -> None:
        """Listen for news; returns when that has begun, or is taking long."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="glassloop redis news")
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._listening.wait()

    async def _listen(self) -> None:
        from redis.exceptions import RedisError

        while True:
            try:
                async with self.client.pubsub() as channel:
                    await channel.subscribe(self._channel)
                    async for message in channel.listen():
                        if message["type"] == "subscribe":
                            self._listening.set()
                        elif message["type"] == "message":
                            self._publish(message["data"].decode())
            except (RedisError, OSError):
                self._listening.clear()
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        """End what goes on in the background and close the connections."""
        tasks = [*self.background.values(), *([self._listener] if self._listener else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._client is not None:
            await self._client.aclose()
            await self._client.connection_pool.disconnect()


async def _run(
    script: Script,
    keys: Sequence[str],
    arguments: Sequence[Argument],
    order: asyncio.Lock | None,
    connections: _Connections,
) -> Any:
    async with order or nullcontext():
        return await connections.retried(partial(_evaluate, script, keys, arguments))


async def _insist(work: Callable[[_Connections], Coroutine[Any, Any, Any]], connections: _Connections) -> None:
    """Do `work`; if the server is away, when it is back."""

    async def again() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_INSIST_S):
                while True:
                    await asyncio.sleep(POLL_S)
                    with suppress(StoreError):
                        return await work(connections)

    try:
        await work(connections)
    except StoreError as error:
        _log.warning("%s Trying again for %g s.", error, _INSIST_S)
        connections.begin(f"again {id(again)}", again)


async def _evaluate(script: Script, keys: Sequence[str], arguments: Sequence[Argument], client: Any) -> Any:
    from redis.exceptions import NoScriptError

    operands = (len(keys), *keys, *arguments)
    try:
        return await client.execute_command("EVALSHA", script.digest, *operands)
    except NoScriptError:
        return await client.execute_command("EVAL", script.code, *operands)


async def _command(words: Sequence[Argument], client: Any) -> Any:
    return await client.execute_command(*words)
