"""A value that is worked out once for each object: `functools.cached_property` without the lock it takes in 3.11."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class memoized(Generic[T]):  # noqa: N801 - a decorator, as `property` is
    """Works a value out at its first use and keeps it on the object, whose class needs a `__dict__`.

    Two threads may both work it out, so it must not matter which of the two values stays.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> memoized[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> memoized[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._function(instance)
        return value
