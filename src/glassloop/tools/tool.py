"""A tool: a function that a model may ask for, with everything the runtime must know about it."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from io import IOBase
from types import MethodType
from typing import Any, Literal, TypedDict, cast, overload

from typing_extensions import Unpack

from glassloop.core.context import RunContext
from glassloop.core.encoding import dumps
from glassloop.core.errors import FatalToolError, StoreError, ToolDefinitionError, ToolError
from glassloop.core.insist import insist
from glassloop.models.model import ToolSpec
from glassloop.tools.arguments import ArgumentsError, Gate, Problem, Validated
from glassloop.tools.asking import Asked
from glassloop.tools.binding import Binding
from glassloop.tools.names import name_problem
from glassloop.tools.signature import Callee, ParameterKind, look_into
from glassloop.tools.threads import run_in_thread

Effect = Literal["read", "write"]
Risk = Literal["low", "medium", "high"]
Approval = bool | Callable[[dict[str, Any]], bool | str]
"""True: a human decides on every call; a function of the arguments: on those for which it returns true, and the one
who decides must have the role that it returns, if it returns a text."""

READ_SECONDS = 15.0
WRITE_SECONDS = 60.0


class ToolSettings(TypedDict, total=False):
    """What can be said about a tool beside what the model reads; every field has a default.

    Args:
        effect: `read` (default) or `write`. A write is guarded against repetition and journaled before it runs.
        risk: `low` (default), `medium` or `high`; high risk asks a human.
        idempotent: repeating it with the same idempotency key has one effect.
        repeatable: the same call again is done again, not answered with what the first returned: for writes that set
            or erase something by name, and may rightly be asked for anew after another has changed it.
        timeout: seconds; 15 for a read and 60 for a write unless given, `math.inf` for none.
        retries: repetitions after a failure or a time-out; only for reads and idempotent tools.
        sequential: runs alone: the calls before it in the step finish first.
        trusted_output: what it returns is not outside text that may hold instructions.
        approval: whether a human decides on a call (`Approval`); unless given, the risk says.
        undo: called with (arguments, result) to take a write back, after the context if its first parameter is one.
        reconcile: called with the idempotency key; tells whether a call whose result was lost took effect.
        transaction: its effect and the journal's entry are committed together; such a function is sync.
    """

    effect: Effect
    risk: Risk
    idempotent: bool
    repeatable: bool
    timeout: float | None
    retries: int
    sequential: bool
    trusted_output: bool
    approval: Approval | None
    undo: Callable[..., Any] | None
    reconcile: Callable[..., Any] | None
    transaction: bool


class ToolOptions(ToolSettings, total=False):
    """`ToolSettings`, and what the model reads.

    Args:
        name: the function's name, or the class's in snake_case, unless given.
        description: from the docstring unless given.
    """

    name: str | None
    description: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """A tool. Made by `@tool`, `Tool.from_schema` or `as_tool`, never changed; see `ToolSettings` for most fields.

    Still callable as the function that it is made of. In a class body `@tool` makes a tool of each object's method.

    Args:
        function: what is called.
        spec: what the model is told: name, description and parameters.
        origin: `module:qualified_name` of the function, for error messages and fingerprints.
        in_thread: whether the function is sync and so runs in a thread.
        unbound: a method in a class body, which needs an object before it can be called.
    """

    function: Callable[..., Any]
    spec: ToolSpec
    origin: str
    effect: Effect = "read"
    risk: Risk = "low"
    idempotent: bool = False
    repeatable: bool = False
    timeout: float | None = None
    retries: int = 0
    sequential: bool = False
    trusted_output: bool = False
    approval: Approval | None = None
    undo: Callable[..., Any] | None = None
    reconcile: Callable[..., Any] | None = None
    transaction: bool = False
    in_thread: bool = True
    unbound: bool = False
    gate: Gate = field(repr=False)
    binding: Binding = field(repr=False)

    @property
    def name(self) -> str:
        """The name for the model."""
        return self.spec.name

    @property
    def description(self) -> str:
        """The description for the model."""
        return self.spec.description

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments; a copy that you may change. `spec.parameters` is the shared one."""
        return copy.deepcopy(dict(self.spec.parameters))

    @property
    def effective_timeout(self) -> float:
        """Seconds that a call may take."""
        if self.timeout is not None:
            return self.timeout
        return READ_SECONDS if self.effect == "read" else WRITE_SECONDS

    def validate(self, raw: str | Mapping[str, Any] | None, *, complete: bool = True) -> Validated:
        """Let the arguments of a call through the gate.

        Args:
            raw: as the model wrote them, or already an object (edited by a human).
            complete: False where the model's reply was cut off.

        Raises:
            ArgumentsError: they do not fit; the message tells the model what to change.
        """
        text = raw if isinstance(raw, str) else dumps(raw).decode()
        checked = self.gate.check(self.spec.name, text, complete)
        if self.binding.spread is None:
            return checked
        if clashes := self.binding.clashes(checked.kwargs):
            said = "is an argument of its own: give it beside this object, not inside"
            raise ArgumentsError(self.name, [Problem(f"{self.binding.spread}.{name}", said) for name in clashes])
        return checked

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the defaults that the schema states filled in, for keys that must not depend on whether
        the model spelled a default out."""
        stated: Mapping[str, Any] = self.spec.parameters["properties"]
        described = {name: schema for name, schema in stated.items() if not isinstance(schema, bool)}
        defaults = {name: schema["default"] for name, schema in described.items() if "default" in schema}
        return {**defaults, **arguments}

    async def invoke(self, kwargs: Mapping[str, Any], context: RunContext[Any]) -> Any:
        """Call the function: sync ones in a thread, awaitables awaited.

        What a generator yields goes to `context.progress`; the result is the list of it, or what a sync generator
        returns at its end where that is not None.

        Args:
            kwargs: from `validate`.
            context: given to the function if it asks for it; its `cancelled` is set when this call is cancelled. A
                coroutine that goes on in spite of that is stopped after 5 s, a thread is left to itself.

        Raises:
            Exception: whatever the function raises, unchanged, except that `SystemExit` and whatever else is no
                Exception (a panic in Rust code, say) becomes a RuntimeError, and an ExceptionGroup, as a TaskGroup
                makes it even of one failure, what it comes to.
        """
        try:
            if self.in_thread:
                result = await run_in_thread(lambda: _collected(self.call(kwargs, context), context))
            else:
                result = self.call(kwargs, context)
            if type(result) in _PLAIN:
                return result
            meant, excused = partial(_is_over, context), partial(_waits_below, context)
            return await insist(_settled(result, context), self.spec.name, meant, excused)
        except asyncio.CancelledError:
            context.cancelled.set()
            raise
        except SystemExit as error:
            raise RuntimeError("the tool tried to end the process") from error
        except ExceptionGroup as group:
            raise _sum(group) from group
        except BaseException as error:
            if isinstance(error, _PASSES):
                raise
            raise RuntimeError(f"the tool raised {type(error).__name__}, which is no Exception") from error

    def call(self, kwargs: Mapping[str, Any], context: RunContext[Any]) -> Any:
        """Call the function here and now and return what it returns: a value, an awaitable or a generator."""
        return self.binding.call(self.function, kwargs, context)

    def renamed(self, name: str) -> Tool:
        """The same tool under another name.

        Raises:
            ToolDefinitionError: `name` cannot name a tool.
        """
        _check_name(name, self.origin)
        return replace(self, spec=replace(self.spec, name=name))

    def is_same_as(self, other: Tool) -> bool:
        """Whether both are the same function with the same settings, so that either can stand for the other."""
        if self is other:
            return True
        names = (one.name for one in fields(self) if one.name not in ("gate", "binding"))
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as it is."""
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Tool:
        """In a class body, the tool of one object: `desk.look_up` calls `Desk.look_up(desk, ...)`."""
        if instance is None or not self.unbound:
            return self
        bound = self.function.__get__(instance, owner)
        return replace(self, function=bound, unbound=False)

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        function: Callable[..., Any],
        **options: Unpack[ToolSettings],
    ) -> Tool:
        """A tool whose arguments are described by a JSON Schema.

        Args:
            name: for the model.
            description: for the model.
            parameters: JSON Schema of an object; copied.
            function: sync or async, called with the arguments by keyword: write `**arguments` to have them in one
                dict. A `RunContext` parameter is given the context.
            options: as for `tool`.

        Raises:
            ToolDefinitionError: the schema is invalid, or does not fit the function.
        """
        from glassloop.tools.raw import SchemaGate, object_schema

        callee = look_into(function)
        schema = object_schema(parameters, callee.origin)
        gate = SchemaGate(schema, parameters, callee)
        by_name = (ParameterKind.VAR_POSITIONAL, ParameterKind.VAR_KEYWORD)
        binding = Binding([one for one in callee.parameters if one.is_context or one.kind not in by_name])
        spec = ToolSpec(name, description, schema)
        return _made(function, callee, spec, gate, binding, options)


ToolLike = Tool | Callable[..., Any]


@overload
def tool(function: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(function: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function, method, partial or callable object.

    Used as `@tool`, `@tool(effect="write")` or `tool(function, name="other")`. The signature and the docstring (Google,
    NumPy or Sphinx style) become the schema that the model sees. A parameter annotated with `RunContext` receives the
    run's context and is never shown. `*parts` becomes a list, `**options` an object. Arguments bound by
    `functools.partial` are hidden.

    Args:
        function: what the model may call.
        options: see `ToolOptions`.

    Raises:
        ToolDefinitionError: it cannot be a tool; names the function and the parameter.
    """
    if function is None:
        return partial(_from_function, options=options)
    return _from_function(function, options)


def as_tool(source: ToolLike) -> Tool:
    """A tool, or a callable made one.

    Raises:
        ToolDefinitionError: it is neither, or cannot be a tool.
    """
    if isinstance(source, Tool):
        return source
    if isinstance(source, MethodType) and isinstance(source.__func__, Tool):  # a classmethod, from Python 3.13 on
        return source.__func__.__get__(source.__self__)
    if not callable(source):
        raise ToolDefinitionError(f"A {type(source).__name__} is no tool: give a function, a Tool or a Toolset.")
    return _from_function(source, {})


def _from_function(function: Callable[..., Any], options: ToolOptions) -> Tool:
    from glassloop.tools.docstrings import read_docstring
    from glassloop.tools.function_gate import FunctionGate
    from glassloop.tools.schema import arguments_of

    if isinstance(function, Tool):
        raise ToolDefinitionError(f"{function.origin} is already a tool; decorate the plain function once.")
    callee = look_into(function)
    documentation = read_docstring(callee.docstring)
    described = documentation.parameters
    if callee.call_docstring != callee.docstring:  # a class may describe itself, and its `__call__` the arguments
        described = {**described, **read_docstring(callee.call_docstring).parameters}
    arguments = arguments_of(callee, described)
    description = options.get("description")
    spec = ToolSpec(
        options.get("name") or callee.name,
        documentation.description if description is None else description,
        arguments.schema,
    )
    return _made(function, callee, spec, FunctionGate(arguments), Binding(callee.parameters), options)


def _made(
    function: Callable[..., Any],
    callee: Callee,
    spec: ToolSpec,
    gate: Gate,
    binding: Binding,
    options: Mapping[str, Any],
) -> Tool:
    _check_name(spec.name, callee.origin)
    settings = {key: value for key, value in options.items() if key not in ("name", "description")}
    _check_settings(settings, callee.origin)
    return Tool(
        function=function,
        spec=spec,
        origin=callee.origin,
        in_thread=not callee.is_async,
        unbound=callee.unbound,
        gate=gate,
        binding=binding,
        **cast("Any", settings),
    )


def _check_name(name: str, origin: str) -> None:
    if problem := name_problem(name):
        raise ToolDefinitionError(f"{origin} cannot be a tool: {problem}.")


def _check_settings(settings: dict[str, Any], origin: str) -> None:
    unknown = settings.keys() - ToolSettings.__annotations__.keys()
    if unknown:
        raise ToolDefinitionError(f"{origin}: @tool has no option {', '.join(sorted(unknown))}.")
    for option, allowed in (("effect", ("read", "write")), ("risk", ("low", "medium", "high"))):
        if settings.get(option, allowed[0]) not in allowed:
            raise ToolDefinitionError(f"{origin}: {option} must be {' or '.join(map(repr, allowed))}.")
    if inspect.iscoroutinefunction(settings.get("approval")):
        raise ToolDefinitionError(
            f"{origin}: the function given as approval must not be async: whatever it returns is true."
        )
    timeout = settings.get("timeout")
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise ToolDefinitionError(f"{origin}: timeout must be more than 0 seconds.")
    if settings.get("retries", 0) < 0:
        raise ToolDefinitionError(f"{origin}: retries must be 0 or more.")


_PASSES = (Exception, Asked, BaseExceptionGroup, GeneratorExit, KeyboardInterrupt)
_PLAIN = frozenset({str, int, float, bool, dict, list, bytes, type(None)})


def _is_over(context: RunContext[Any]) -> bool:
    """Whether a call that is being cancelled is so from outside: its time is up, or its run ends."""
    if context.cancelled.is_set() or (context.is_late is not None and context.is_late()):
        return True
    return context.below is not None and context.below.ends()


def _waits_below(context: RunContext[Any]) -> bool:
    """Whether a run that the call has begun is still ending."""
    return context.below is not None and context.below.drives_below()


async def _settled(result: Any, context: RunContext[Any]) -> Any:
    """The value behind what a function returned."""
    if isinstance(result, Awaitable):
        result = await cast("Awaitable[Any]", result)
    if isinstance(result, AsyncIterator):
        return await _collected_async(cast("AsyncIterator[Any]", result), context)
    if _is_generator(result):
        return await run_in_thread(lambda: _collected(result, context))
    return result


def _sum(group: ExceptionGroup[Exception]) -> Exception:
    """What failures side by side come to: the one that stops the run, or what is said to the model, else the first."""
    leaves = list(_leaves(group))
    for kind in (FatalToolError, StoreError):
        if found := next((leaf for leaf in leaves if isinstance(leaf, kind)), None):
            return found
    said = [leaf for leaf in leaves if isinstance(leaf, ToolError)]
    return ToolError(" ".join(dict.fromkeys(map(str, said)))) if len(said) > 1 else (said or leaves)[0]


def _leaves(error: Exception) -> Iterator[Exception]:
    if not isinstance(error, ExceptionGroup):
        yield error
        return
    for inner in cast("ExceptionGroup[Exception]", error).exceptions:
        yield from _leaves(inner)


def _is_generator(result: Any) -> bool:
    return isinstance(result, Iterator) and not isinstance(result, IOBase)


def _collected(result: Any, context: RunContext[Any]) -> Any:
    """In the thread: everything that a generator yields, each reported as progress; anything else as it is."""
    if type(result) in _PLAIN or not _is_generator(result):
        return result
    values: list[Any] = []
    try:
        while not context.cancelled.is_set():
            value = next(result)
            context.progress(value)
            values.append(value)
    except StopIteration as end:
        return values if end.value is None else end.value
    if hasattr(result, "close"):
        result.close()
    return values


async def _collected_async(result: AsyncIterator[Any], context: RunContext[Any]) -> list[Any]:
    values: list[Any] = []
    try:
        async for value in result:
            context.progress(value)
            values.append(value)
    finally:
        if isinstance(result, AsyncGenerator):
            await result.aclose()
    return values
