"""The one shape of middleware, `await layer(call, next)`: looked at when it is given, and not at its first call."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from functools import partial
from typing import Any, cast, get_type_hints

from glassloop.core.errors import ConfigurationError

_WANTED = "async def layer(call, next)"


def check_layer(layer: object, where: str) -> None:
    """Refuse what cannot be a layer.

    Args:
        layer: what is given.
        where: as what, to begin the message with.

    Raises:
        ConfigurationError: a class in place of an instance, something that cannot be called with a call and what comes
            next, or that is not async.
    """
    if isinstance(layer, type):
        raise ConfigurationError(f"{where} has the class {layer.__name__}: give an instance, {layer.__name__}(...).")
    if not callable(layer):
        raise ConfigurationError(f"{where} has a value of type {type(layer).__name__}, which has no __call__.")
    name = getattr(layer, "__qualname__", type(layer).__name__)
    if not _takes_two(layer):
        raise ConfigurationError(f"{where}: {name} cannot be called with (call, next): make it {_WANTED}.")
    if _is_sync(layer):
        raise ConfigurationError(f"{where}: {name} is not async: make it {_WANTED}, with `await next(call)` in it.")


def _takes_two(layer: Any) -> bool:
    try:
        inspect.signature(layer).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # it does not tell, as some of what is written in C
        return True
    return True


def _is_sync(layer: Any) -> bool:
    """Whether it surely gives nothing to await: a function that is not async, and not annotated to give it."""
    while isinstance(layer, partial):
        layer = cast("Any", layer).func
    function = inspect.unwrap(layer if inspect.isroutine(layer) else type(layer).__call__)
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        return False
    return not (inspect.iscoroutinefunction(function) or _gives_awaitable(function))


def _gives_awaitable(function: Any) -> bool:
    """Whether a decorator that is not async itself says that it gives an awaitable, or may."""
    try:
        given = get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001 - annotations are anybody's code
        return True
    origin = getattr(given, "__origin__", given)
    return given is Any or (isinstance(origin, type) and issubclass(origin, Awaitable))
