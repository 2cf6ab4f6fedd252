"""Which tools a run has, given once or computed from its context; and how a name that a model wrote finds one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from typing_extensions import TypeIs

from glassloop.core.context import RunContext
from glassloop.core.errors import ToolDefinitionError
from glassloop.core.names import before_markup, wire_name
from glassloop.models.model import ToolSpec
from glassloop.tools.names import cleaned
from glassloop.tools.tool import Tool, ToolLike, as_tool

_MOST_CLOSE = 3
_MOST_LISTED = 30
_MOST_REMEMBERED = 1_024


@runtime_checkable
class Toolset(Protocol):
    """Anything that gives tools for a run.

    Asked before each model call, so that a set may change between two steps and never within one. `context` has no
    call: its `call_id` is empty. Give the same Tool objects where nothing changed: what is made of them is kept.
    """

    def tools(self, context: RunContext[Any], /) -> Sequence[Tool] | Awaitable[Sequence[Tool]]:
        """The tools of this run at this moment; sync or async."""
        ...


ToolSource = ToolLike | Toolset
"""What may stand in an agent's list of tools: a function, a Tool, or a Toolset."""


class ToolIndex:
    """The tools of one step, by name.

    Args:
        tools: in the order in which the model sees them.

    Raises:
        ToolDefinitionError: two different tools have one name, here or on the wire; names both origins.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.by_name: dict[str, Tool] = {}
        self._by_wire_name: dict[str, str] = {}
        for tool in tools:
            self._add(tool)
        self.specs: tuple[ToolSpec, ...] = tuple(tool.spec for tool in self.by_name.values())
        self.undoable = frozenset(tool.name for tool in self.by_name.values() if tool.undo is not None)
        self.sequential = frozenset(tool.name for tool in self.by_name.values() if tool.sequential)

    def _add(self, tool: Tool) -> None:
        if tool.unbound:
            raise ToolDefinitionError(f"{tool.origin} is a method without its object: give `object.{tool.name}`.")
        known = self.by_name.get(tool.name)
        if known is not None:
            if known.is_same_as(tool):
                return
            raise ToolDefinitionError(_conflict(tool.name, known, tool))
        on_wire = wire_name(tool.name)
        if on_wire in self._by_wire_name:
            known = self.by_name[self._by_wire_name[on_wire]]
            raise ToolDefinitionError(_conflict(f"{on_wire} on the wire", known, tool))
        self.by_name[tool.name] = tool
        self._by_wire_name[on_wire] = tool.name

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in the order in which the model sees them."""
        return tuple(self.by_name.values())

    def find(self, name: str) -> Tool | None:
        """The tool that a model means by `name`, or None where there is none."""
        return self.by_name.get(name) or self.by_name.get(self.canonical(name))

    def canonical(self, name: str) -> str:
        """A name as a model wrote it, as we know it.

        Blanks around it and what follows a chat-template token (`<|`) go, a wire name becomes the tool's own name, and
        the namespace that OpenAI's models know tools under (`functions.add`) and markup after the name go where a tool
        remains. Nothing else is guessed: any other name comes back as it is, cleaned.
        """
        if name in self.by_name:
            return name
        name = cleaned(name)
        for candidate in (name, name.removeprefix("functions."), before_markup(name)):
            if candidate in self.by_name:
                return candidate
            if candidate in self._by_wire_name:
                return self._by_wire_name[candidate]
        return name

    def closest(self, name: str, most: int = _MOST_CLOSE) -> list[str]:
        """Names of tools that look like `name`, the closest first."""
        from difflib import get_close_matches

        by_folded = {known.lower(): known for known in self.by_name}
        wanted = cleaned(name).lower()
        close = get_close_matches(wanted, by_folded, n=most, cutoff=0.5)
        words = set(wanted.replace("-", "_").split("_")) - {""}
        shared = [known for known in by_folded if words & set(known.replace("-", "_").split("_"))]
        return [by_folded[known] for known in dict.fromkeys((*close, *shared))][:most]

    def __len__(self) -> int:
        return len(self.by_name)


def index_tools(tools: Iterable[Tool]) -> ToolIndex:
    """The index of some tools; see `ToolIndex`."""
    return ToolIndex(tools)


def unknown_tool_message(name: str, index: ToolIndex) -> str:
    """What a model is told that calls a tool which this run does not have: the closest names, then those that exist."""
    shown = cleaned(name)[:64]
    if not index.by_name:
        return f"There is no tool {shown!r}: this run has no tools. Answer without."
    close = index.closest(name)
    names = list(index.by_name)
    parts = [f"There is no tool {shown!r}."]
    if close:
        parts.append(f"Closest: {', '.join(close)}.")
    listed = ", ".join(names[:_MOST_LISTED])
    more = f", and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    parts.append(f"Tools that exist: {listed}{more}.")
    return " ".join(parts)


class ToolSources:
    """An agent's list of tools: what is given once is checked and indexed once.

    Args:
        sources: functions, Tools and Toolsets, in the order in which the model sees their tools.

    `is_static` tells whether the tools do not depend on the run.

    Raises:
        ToolDefinitionError: one cannot be a tool, or two of those given once conflict.
    """

    def __init__(self, sources: Iterable[ToolSource]) -> None:
        self._sources = [source if _is_toolset(source) else as_tool(source) for source in sources]
        self._index = ToolIndex(source for source in self._sources if isinstance(source, Tool))
        self._given = self._index
        self._of: tuple[Tool, ...] = self._index.tools
        self.is_static = all(isinstance(source, Tool) for source in self._sources)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools that are given once."""
        return tuple(tool.name for tool in self.always)

    @property
    def always(self) -> tuple[Tool, ...]:
        """The tools that are given once."""
        return tuple(source for source in self._sources if isinstance(source, Tool))

    def given(self, name: str) -> Tool | None:
        """A tool that is given once, by name."""
        return self._given.find(name)

    async def resolve(self, context: RunContext[Any]) -> ToolIndex:
        """The tools of this moment. The same tools give the same index, so what is made of it can be kept.

        Raises:
            ToolDefinitionError: two different tools have one name.
        """
        if self.is_static:
            return self._index
        tools: list[Tool] = []
        for source in self._sources:
            tools += [source] if isinstance(source, Tool) else await tools_of(source, context)
        found = tuple(tools)
        if found != self._of:
            self._index, self._of = ToolIndex(found), found
        return self._index


async def resolve_tools(sources: Iterable[ToolSource], context: RunContext[Any]) -> ToolIndex:
    """The tools of a run from scratch; `ToolSources` keeps what need not be done twice.

    Raises:
        ToolDefinitionError: one cannot be a tool, or two conflict.
    """
    return await ToolSources(sources).resolve(context)


async def tools_of(source: Toolset, context: RunContext[Any]) -> Sequence[Tool]:
    """Ask a toolset, sync or async."""
    tools = source.tools(context)
    return await tools if inspect.isawaitable(tools) else tools


class FunctionToolset:
    """Functions and Tools as one set, to be filtered, renamed or prefixed together.

    Raises:
        ToolDefinitionError: one of them cannot be a tool.
    """

    def __init__(self, *functions: ToolLike) -> None:
        self._tools = tuple(as_tool(function) for function in functions)

    def tools(self, context: RunContext[Any], /) -> Sequence[Tool]:
        """The same for every run."""
        return self._tools


Compute = Callable[[RunContext[Any]], Iterable[ToolLike] | Awaitable[Iterable[ToolLike]]]


class DynamicToolset:
    """Tools computed from the run's context: by tenant, by role, by the hour.

    Args:
        compute: sync or async; returns functions or Tools. A function that is returned again is the same tool again.
    """

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._made: dict[Any, tuple[ToolLike, Tool]] = {}

    async def tools(self, context: RunContext[Any], /) -> Sequence[Tool]:
        """What `compute` says."""
        found = self._compute(context)
        functions = await found if inspect.isawaitable(found) else found
        return [self._tool(function) for function in functions]

    def _tool(self, function: ToolLike) -> Tool:
        if isinstance(function, Tool):
            return function
        key: Any = function if type(function).__hash__ is not None else id(function)
        if key not in self._made:
            if len(self._made) >= _MOST_REMEMBERED:
                self._made.clear()  # functions made anew for each run would pile up for ever
            self._made[key] = (function, as_tool(function))  # the function is held, so that its id stays its own
        return self._made[key][1]


class FilteredToolset:
    """Those tools of a set for which `predicate(tool, context)` says yes; the others do not exist for the run."""

    def __init__(self, inner: Toolset, predicate: Callable[[Tool, RunContext[Any]], bool]) -> None:
        self._inner = inner
        self._predicate = predicate

    async def tools(self, context: RunContext[Any], /) -> Sequence[Tool]:
        """The filtered set."""
        return [tool for tool in await tools_of(self._inner, context) if self._predicate(tool, context)]


class RenamedToolset:
    """A set with some of its tools under other names.

    Args:
        inner: the set.
        names: from the name that a tool has to the one that it gets, or a function of the name.
    """

    def __init__(self, inner: Toolset, names: Mapping[str, str] | Callable[[str], str]) -> None:
        self._inner = inner
        self._names = names
        self._renamed: dict[int, tuple[Tool, Tool]] = {}

    async def tools(self, context: RunContext[Any], /) -> Sequence[Tool]:
        """The renamed set."""
        return [self._rename(tool) for tool in await tools_of(self._inner, context)]

    def _rename(self, tool: Tool) -> Tool:
        known = self._renamed.get(id(tool))
        if known is not None and known[0] is tool:
            return known[1]
        if len(self._renamed) >= _MOST_REMEMBERED:
            self._renamed.clear()
        name = self._names(tool.name) if callable(self._names) else self._names.get(tool.name, tool.name)
        renamed = tool.renamed(name)
        self._renamed[id(tool)] = (tool, renamed)
        return renamed


class PrefixedToolset(RenamedToolset):
    """A set whose names all begin with `prefix`, so that it can stand beside another with the same names."""

    def __init__(self, inner: Toolset, prefix: str) -> None:
        super().__init__(inner, lambda name: prefix + name)


def _is_toolset(source: ToolSource) -> TypeIs[Toolset]:
    return not isinstance(source, Tool) and callable(getattr(source, "tools", None))


def _conflict(name: str, one: Tool, other: Tool) -> str:
    if one.origin == other.origin:
        return f"Two tools are named {name}, both made of {one.origin} but with different settings. Give one only."
    return (
        f"Two tools are named {name}: {one.origin} and {other.origin}. "
        "Rename one (`tool(function, name=...)`), or put a prefix before one set (`PrefixedToolset`)."
    )
