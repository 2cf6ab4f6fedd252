"""Innermost for tools on the journal's own database: effect, result and ledger entry are one commit."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from glassloop.core.encoding import dumps
from glassloop.core.events import ToolFinished
from glassloop.middleware.call import Call, Done, Next, Pending
from glassloop.middleware.outcome import outcome_of
from glassloop.tools.asking import Answers
from glassloop.tools.results import render_result


class Transaction:
    """Runs a tool with `transaction=True` in a transaction that also records its result, so that it is never in doubt.

    The function is sync, runs on the database's thread, gets `context.transaction`, and may be called again if the
    transaction had to be repeated: it must do nothing but use that transaction. Where it asks a human, all that it did
    before is undone.
    """

    async def __call__(self, call: Call, next: Next, /) -> Any:
        """See `ToolMiddleware`.

        Raises:
            ConfigurationError: the journal stands in no database.
        """
        tool = call.found
        if not tool.transaction:
            return await next(call)
        began = time.perf_counter()
        known = call.answers

        def work(writing: Any) -> tuple[Any, ToolFinished]:
            with Answers(known) as answers:
                value = tool.call(call.kwargs, replace(call.context, transaction=writing.transaction))
                if answers.question is None:
                    return value, _recorded(call, value, began, writing)
            raise _Undone(Pending("", question=answers.question))

        try:
            value = await call.recorder.transact(work)
        except _Undone as undone:
            return undone.pending
        call.recorded = True
        return value


def _recorded(call: Call, value: Any, began: float, writing: Any) -> ToolFinished:
    outcome = outcome_of(call, Done(value), round((time.perf_counter() - began) * 1000, 3))
    writing.keep(call.context.run_id, outcome.blobs)
    if call.claim is not None:
        writing.settle(call.claim, call.owner, dumps(render_result(value).value))
    call.recorder.values.update(outcome.values)
    return outcome.data


class _Undone(Exception):
    """Undoes a transaction whose function asks a human. A database's thread carries no signal, only an `Exception`."""

    def __init__(self, pending: Pending) -> None:
        super().__init__()
        self.pending = pending
