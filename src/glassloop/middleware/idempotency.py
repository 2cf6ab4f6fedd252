"""The same write twice runs once."""

from __future__ import annotations

import asyncio
from typing import Any

from glassloop.core.encoding import canonical, digest, dumps, loads
from glassloop.core.ids import root_of
from glassloop.journal.ledger import DAY, Claim, Done, InDoubt, InFlight, Ledger, Owner, Yours
from glassloop.journal.state import fold
from glassloop.middleware.call import Call, CallStopped, Next, Pending
from glassloop.tools.results import render_result

SLACK_SECONDS = 30.0
"""A claim outlives its tool's time-out by this, for each attempt, so that neither a slow commit nor the pause before
the next attempt is taken for a crash."""


class Idempotency:
    """Runs a write once per session, tool and arguments, unless it is `repeatable`, and answers repetitions with the
    first result.

    Only successes are remembered, until they are undone. Concurrent duplicates wait for the one in flight. Another
    session is another key; without a session the run stands in its place, with all runs below it.

    Args:
        ledger: where claims stand; None takes the run's store.
        ttl: seconds that a success is remembered.
    """

    def __init__(self, ledger: Ledger | None = None, ttl: float = DAY) -> None:
        self.ledger = ledger
        self.ttl = ttl

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`.

        Raises:
            CallStopped: an earlier identical call was begun, and nobody knows how it ended.
        """
        tool, ledger = call.found, self.ledger
        if tool.effect != "write" or tool.repeatable or ledger is None:
            return await next(call)
        key = call.claim = self.key(call)
        await call.recorder.commit()  # a claim whose call no journal knows would be a doubt that nobody can settle
        while True:
            match await self._claim(call, ledger, key):
                case Yours():
                    return await self._run(call, next, ledger, key)
                case Done(owner) if await _was_undone(call, owner):
                    key = call.claim = digest(f"{key}/{owner[1]}".encode())  # undone since: the next is one of its own
                case Done(owner, result):
                    call.replayed = owner != call.owner  # its own, cut off before the journal had it, is no repetition
                    return loads(result)
                case InDoubt(holder) if tool.transaction:
                    await ledger.release(key, holder)  # unsettled is undone: both are one commit
                case InDoubt():
                    raise CallStopped(
                        f"An identical call of {tool.name} was begun earlier and nobody recorded how it ended: outcome "
                        "unknown. Do not repeat it; check its effect or tell the user.",
                        "unknown",
                    )
                case InFlight():
                    await ledger.wait(key)

    def key(self, call: Call) -> str:
        """What makes two calls the same: for whom, which tool, which arguments."""
        who = call.context.identity
        session = ["session", who.tenant, who.user, who.session]
        scope = session if who.session else ["run", root_of(call.context.run_id)]
        arguments = call.found.with_defaults(call.arguments or {})
        return digest(canonical([scope, call.found.name, arguments]).encode())

    async def _claim(self, call: Call, ledger: Ledger, key: str) -> Claim:
        lease = (call.found.effective_timeout + SLACK_SECONDS) * (1 + call.found.retries)
        try:
            return await ledger.claim(key, call.owner, lease, self.ttl)
        except asyncio.CancelledError:
            await self._leave(call, ledger, key)  # it may have been made all the same
            raise

    async def _run(self, call: Call, next: Next, ledger: Ledger, key: str) -> Any:
        owner = call.owner
        try:
            value = await next(call)
        except asyncio.CancelledError:
            await self._leave(call, ledger, key)
            raise
        except CallStopped as stopped:
            if stopped.status == "unknown":
                await self._doubt(call, ledger, key)
            else:
                await ledger.release(key, owner)
            raise
        except Exception:
            await ledger.release(key, owner)
            raise
        if isinstance(value, Pending) and value.question is not None:
            await ledger.release(key, owner)  # it has left by itself, and begins anew with the answer
        elif isinstance(value, Pending):
            await self._doubt(call, ledger, key)
        elif not call.recorded:
            await ledger.settle(key, owner, dumps(render_result(value).value))
        return value

    async def _leave(self, call: Call, ledger: Ledger, key: str) -> None:
        """Of a cancelled call: what has begun may have happened, and what has not must hold nobody up."""
        if call.call.id in call.recorder.state.begun or call.found.transaction:
            await self._doubt(call, ledger, key)
        else:
            await ledger.release(key, call.owner)

    async def _doubt(self, call: Call, ledger: Ledger, key: str) -> None:
        """Let the claim lapse: nobody is at it any more, and a duplicate must not wait for an answer."""
        await ledger.claim(key, call.owner, 0.0, self.ttl)


async def _was_undone(call: Call, owner: Owner) -> bool:
    """Whether the effect of another call was taken back when its run failed: then it stands no more."""
    run_id, call_id = owner
    if call.found.undo is None or owner == call.owner:
        return False
    state = call.recorder.state
    if run_id != state.run_id:
        state = fold(await call.recorder.journal.read(run_id))
    ended = state.undone.get(call_id)
    return ended is not None and ended.error is None
