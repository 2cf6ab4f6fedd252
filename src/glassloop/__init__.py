"""Glassloop: an agent runtime you can see through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassloop.core.lazy import lazy

if TYPE_CHECKING:
    from glassloop.agent import Agent as Agent
    from glassloop.core.context import Identity as Identity
    from glassloop.core.context import RunContext as RunContext
    from glassloop.core.errors import ConfigurationError as ConfigurationError
    from glassloop.core.errors import FatalToolError as FatalToolError
    from glassloop.core.errors import GlassloopError as GlassloopError
    from glassloop.core.errors import LimitReached as LimitReached
    from glassloop.core.errors import ModelError as ModelError
    from glassloop.core.errors import ToolDefinitionError as ToolDefinitionError
    from glassloop.core.errors import ToolError as ToolError
    from glassloop.core.events import Event as Event
    from glassloop.core.limits import Limits as Limits
    from glassloop.core.messages import Media as Media
    from glassloop.core.result import RunResult as RunResult
    from glassloop.core.usage import Usage as Usage
    from glassloop.models.fallback import Fallback as Fallback
    from glassloop.models.model import ModelSettings as ModelSettings
    from glassloop.tools.asking import ask_human as ask_human
    from glassloop.tools.output import Output as Output
    from glassloop.tools.tool import Tool as Tool
    from glassloop.tools.tool import tool as tool

_HOMES = {
    "Agent": "agent",
    "ConfigurationError": "core.errors",
    "Event": "core.events",
    "Fallback": "models.fallback",
    "FatalToolError": "core.errors",
    "GlassloopError": "core.errors",
    "Identity": "core.context",
    "LimitReached": "core.errors",
    "Limits": "core.limits",
    "Media": "core.messages",
    "ModelError": "core.errors",
    "ModelSettings": "models.model",
    "Output": "tools.output",
    "RunContext": "core.context",
    "RunResult": "core.result",
    "Tool": "tools.tool",
    "ToolDefinitionError": "core.errors",
    "ToolError": "core.errors",
    "Usage": "core.usage",
    "ask_human": "tools.asking",
    "tool": "tools.tool",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy(__name__, _HOMES)
