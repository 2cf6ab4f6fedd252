"""A runtime with routes of its own, for `glassloop serve FILE:app`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from glassloop.runnable import Runnable
    from glassloop.runtime import Runtime


@dataclass(frozen=True)
class Service:
    """What to serve, and which routes to add to the server's own.

    Args:
        runtime: a runtime, or the agents to make one of on the store that `glassloop serve` was given.
        extend: adds routes to the app; they are behind the same keys as all others.
    """

    runtime: Runtime | Runnable | Sequence[Runnable]
    extend: Callable[[FastAPI, Runtime], object]
