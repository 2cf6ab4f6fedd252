"""A cancellation that is meant: code that goes on in spite of it gets some seconds to tidy up, and is stopped then.

Python asks a coroutine to end, and one that catches everything goes on: what waits for it would wait for ever, and so
would the end of the process. A thread can only be left to itself (`tools/threads.py`); a coroutine that is not resumed
does nothing any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GRACE_SECONDS = 5.0
"""How long code may go on after it was cancelled."""

_log = logging.getLogger("glassloop")


class _Stopped(BaseException):
    """Raised in code that is stopped, so that its locks and files are let go; `close` would tear apart what catches it,
    and leave the inner parts to the garbage collector."""


def _never() -> bool:
    return False


@coroutine
def insist(
    work: Coroutine[Any, Any, T],
    who: str,
    meant: Callable[[], bool] | None = None,
    excused: Callable[[], bool] = _never,
) -> Generator[Any, Any, T]:
    """Await `work` in this very task, and once the task is cancelled, for `GRACE_SECONDS` at most.

    Args:
        work: a coroutine.
        who: whose code it is, to begin a warning with.
        meant: whether a cancellation comes from outside; those that code makes for itself (`asyncio.timeout`, a
            `TaskGroup`) are its own affair. By default the task tells, which before Python 3.13 takes a TaskGroup that
            has failed for a cancellation (python/cpython#116720).
        excused: whether what holds it up ends by itself; asked when the time is up.

    Raises:
        asyncio.CancelledError: cancelled; where the code would not end, it has been stopped, with a warning.
        Exception: what the code raises.
    """
    meant, thrown = meant or partial(_cancelled_since, _cancels()), None
    try:
        while True:
            waits = work.send(None) if thrown is None else work.throw(thrown)
            if isinstance(thrown, asyncio.CancelledError) and meant():
                return (yield from _last_steps(work, waits, who, meant, excused))
            thrown = None
            try:
                yield waits
            except BaseException as error:  # noqa: BLE001 - all of it is for the code
                thrown = error
    except StopIteration as end:
        return end.value
    finally:
        thrown = None  # its traceback holds this frame


def _last_steps(
    work: Coroutine[Any, Any, T], waits: Any, who: str, meant: Callable[[], bool], excused: Callable[[], bool]
) -> Generator[Any, Any, T]:
    """Let it go on until its time is up; `waits` is the future that it waits for, or None where it lets others run.

    A cancellation that it takes back, having tidied up (`asyncio.timeout` does), was its own, and its time is its own.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + GRACE_SECONDS
    while loop.time() < end or excused():
        own = not meant()
        try:
            again = yield from _next(waits, max(end - loop.time(), 0.1))
        except asyncio.CancelledError as error:  # once more: passed on as a task would
            again = error if waits is None or not waits.cancel() else None
        if own:
            end = loop.time() + GRACE_SECONDS
        if again is None and waits is not None and not waits.done():
            continue
        try:
            waits = work.send(None) if again is None else work.throw(again)
        except StopIteration as ended:
            return ended.value
        finally:
            again = None
    _log.warning("%s did not end when it was cancelled, and was stopped after %g s.", who, GRACE_SECONDS)
    _stop(work, waits)
    raise asyncio.CancelledError


def _next(waits: Any, seconds: float) -> Generator[Any, Any, None]:
    if waits is None:
        yield
    else:
        yield from asyncio.wait([waits], timeout=seconds).__await__()


def _stop(work: Coroutine[Any, Any, Any], waits: Any) -> None:
    if waits is not None:
        waits.cancel()
    try:
        waits = work.throw(_Stopped())
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - it has ended, and in what way is nobody's business any more
        return
    if waits is not None:
        waits.cancel()
    _keep(work)


def _keep(work: Coroutine[Any, Any, Any]) -> None:
    """Never let go of it: Python resumes what it throws away, to close it, also at its own end. Code that catches
    everything would then catch for ever that no loop runs any more, and the process would not end."""
    import ctypes  # rare, and heavy

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(work))


def _cancels() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _cancelled_since(before: int) -> bool:
    return _cancels() > before
