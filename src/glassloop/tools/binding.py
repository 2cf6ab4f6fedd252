"""From keyword arguments, as the gate gives them, to the call that a signature needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from glassloop.tools.signature import Parameter, ParameterKind

_BY_POSITION = (ParameterKind.POSITIONAL_ONLY, ParameterKind.VAR_POSITIONAL)


class Binding:
    """How to call a function.

    `*parts` is an argument `parts` with a list, `**options` an argument `options` with an object.

    Args:
        parameters: of the function; those through which a raw schema's arguments pass by name are left out.

    `spread` is the name of the `**` parameter, or None.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._positional = _positional(parameters)
        by_name = parameters[len(self._positional) :]
        self._context = tuple(one.name for one in by_name if one.is_context)
        self.spread = next((one.name for one in parameters if one.kind is ParameterKind.VAR_KEYWORD), None)
        self._named = {one.name for one in parameters if one.name != self.spread}

    def call(self, function: Callable[..., Any], kwargs: Mapping[str, Any], context: Any) -> Any:
        """Call the function."""
        if self._context:
            kwargs = {**kwargs, **dict.fromkeys(self._context, context)}
        if not self._positional and self.spread is None:
            return function(**kwargs)
        named = dict(kwargs)
        args: list[Any] = []
        for one in self._positional:
            if one.is_context:
                args.append(context)
            elif one.kind is ParameterKind.VAR_POSITIONAL:
                args += named.pop(one.name, ())
            else:
                args.append(named.pop(one.name, one.default))
        if self.spread is not None:
            named |= named.pop(self.spread, {})
        return function(*args, **named)

    def clashes(self, kwargs: Mapping[str, Any]) -> list[str]:
        """Names inside `**options` that are parameters of their own: Python could not pass them."""
        if self.spread is None:
            return []
        return [name for name in kwargs.get(self.spread, ()) if name in self._named]


def _positional(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Those that must be passed by position: all before a `*`, or else those before a `/`."""
    last = max((number for number, one in enumerate(parameters) if one.kind in _BY_POSITION), default=-1)
    return tuple(parameters[: last + 1])
