"""An agent: a model, tools, instructions, limits and middleware. Immutable in use; all state is a run's."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, cast

from glassloop.assembly import ask_about_held, assemble, handoffs_of
from glassloop.core.context import RunContext
from glassloop.core.encoding import digest, dumps
from glassloop.core.errors import ConfigurationError
from glassloop.core.limits import Limits
from glassloop.core.result import OutputT, RunResult
from glassloop.loop import drive
from glassloop.middleware.approval import Approval
from glassloop.middleware.stack import Middleware, model_stack, tool_layers
from glassloop.models.model import Model, ModelSettings
from glassloop.models.registry import resolve_model
from glassloop.options import RunOptions, check_type
from glassloop.runnable import Runnable
from glassloop.tools.output import Output, as_output, check_names
from glassloop.tools.toolset import Toolset, ToolSource, ToolSources
from glassloop.tree import Driving

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from glassloop.core.messages import UserMessage
    from glassloop.core.result import Decision
    from glassloop.journal.recorder import Subscriber
    from glassloop.memory.view import ContextStrategy
    from glassloop.stream import RunStream

Instructions = str | Callable[[RunContext[Any]], str | Awaitable[str]]


class Agent(Runnable, Generic[OutputT]):
    """A model with tools, run by the loop.

    Args:
        model: `provider:model`, a Model, or None for the MODEL variable; resolved when a run starts.
        tools: functions, Tools and toolsets (`DynamicToolset` for tools per user or tenant).
        instructions: the system prompt, or a function of the context that makes it.
        name: names the agent in journals and lists.
        limits: what stops a run.
        settings: how to sample.
        middleware: your own layers, or instances that take the place of a default one.
        memory: what of a conversation the model sees (`glassloop.memory`), applied in this order; by default all of it.
            Tools that a strategy brings join the agent's.
        output: the type of its answers, validated, as `result.value`; or an `Output` that says more. By default they
            are text. Where the conversation is handed on, the type is that of the agent that answers.

    Raises:
        ToolDefinitionError: something in `tools` cannot be a tool, or two have one name.
        ConfigurationError: an argument is not of its type, a layer is none or is given twice, or the output type has no
            JSON form.
    """

    def __init__(
        self,
        model: str | Model | None = None,
        tools: Sequence[ToolSource] = (),
        *,
        instructions: Instructions = "",
        name: str = "agent",
        limits: Limits = Limits(),
        settings: ModelSettings = ModelSettings(),
        middleware: Sequence[Middleware] = (),
        memory: Sequence[ContextStrategy] = (),
        output: type[OutputT] | Output[OutputT] | Any = None,
    ) -> None:
        check_type("Agent(name=)", name, str, "a text")
        check_type("Agent(limits=)", limits, Limits, "a glassloop.Limits")
        check_type("Agent(settings=)", settings, ModelSettings, "a glassloop.ModelSettings")
        if not callable(instructions):
            check_type("Agent(instructions=)", instructions, str, "a text, or a function of the context")
        super().__init__(name, limits)
        self.model = model
        self.instructions = instructions
        self.settings = settings
        self.middleware = middleware
        self.memory = _listed("memory", memory, "view")
        self.tools = ToolSources(
            [*_listed("tools", tools), *(item for item in self.memory if isinstance(item, Toolset))]
        )
        self.output: Output[OutputT] | None = as_output(output)
        check_names(self.output, self.tools.names)
        self._models: dict[str, Model] = {}

    if TYPE_CHECKING:  # what runs of it give is of its output type

        async def run(
            self, input: str | UserMessage | None = None, **options: Unpack[RunOptions]
        ) -> RunResult[OutputT]: ...

        def run_sync(
            self, input: str | UserMessage | None = None, **options: Unpack[RunOptions]
        ) -> RunResult[OutputT]: ...

        def stream(
            self, input: str | UserMessage | None = None, **options: Unpack[RunOptions]
        ) -> RunStream[OutputT]: ...

        async def resume(
            self,
            run_id: str,
            *,
            decisions: Mapping[str, Decision | bool] | None = None,
            subscriber: Subscriber | None = None,
            **options: Unpack[RunOptions],
        ) -> RunResult[OutputT]: ...

    @property
    def below(self) -> Sequence[Runnable]:
        """See `Runnable`: those behind its tools."""
        found: list[Runnable] = []
        for tool in self.tools.always:
            found += getattr(tool.function, "begins", ())
        return found

    @property
    def middleware(self) -> Sequence[Middleware]:
        """What was given of it."""
        return self._middleware

    @middleware.setter
    def middleware(self, given: Sequence[Middleware]) -> None:
        self._middleware = _listed("middleware", given)
        if self._middleware:
            from glassloop.middleware.shape import check_layer

            for layer in self._middleware:
                check_layer(layer, "Agent(middleware=)")
        self.layers = tuple(tool_layers(self._middleware))
        self.ask = model_stack(self._middleware)

    @property
    def approval(self) -> Approval:
        """The layer that says which calls need a human."""
        return next(layer for layer in self.layers if isinstance(layer, Approval))

    def completed(self, result: RunResult, /) -> RunResult[OutputT]:
        """See `Runnable`: with the value that the answer is."""
        output = self.output if result.agent == self.name else handoffs_of(self).get(result.agent, self).output
        answered = result.outcome in ("completed", "limited") and result.replies and result.steps
        if output is None or result.output is None or not answered:
            return result
        return replace(result, value=output.value(result.output))

    async def drive(self, driving: Driving, /) -> None:
        """See `Runnable`."""
        run = await assemble(self, driving)
        try:
            await ask_about_held(self, run, driving)
            await drive(run)
        finally:
            driving.error = run.error

    async def instructions_for(self, context: RunContext[Any]) -> str:
        """The system prompt of a run."""
        if isinstance(self.instructions, str):
            return self.instructions
        made = self.instructions(context)
        return await made if inspect.isawaitable(made) else made

    def model_for(self, options: RunOptions) -> Model:
        """The model of a run, resolved once.

        Raises:
            ConfigurationError: no model, or no key for it.
        """
        override = options.get("model")
        wanted = override if override is not None else self.model
        if wanted is not None and not isinstance(wanted, str):
            if not hasattr(wanted, "stream"):
                raise ConfigurationError(
                    f"The model is of type {type(wanted).__name__}: give provider:model, or a Model."
                )
            return wanted
        key = wanted or os.environ.get("MODEL", "")
        if key not in self._models:
            self._models[key] = resolve_model(wanted)
        return self._models[key]

    def fingerprint_for(self, options: RunOptions) -> str:
        """See `Runnable`."""
        model = self.model_for(options)
        text = self.instructions if isinstance(self.instructions, str) else self.instructions.__qualname__
        memory = [type(item).__name__ for item in self.memory]
        output = [] if self.output is None else [self.output.spec]
        return digest(dumps([self.name, model.name, text, self.tools.names, *memory, *output]))


def _listed(name: str, given: Any, method: str = "") -> tuple[Any, ...]:
    """What an argument of `Agent` lists; each must have the method, and be no class that lacks its parentheses."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(f"Agent({name}=) is of type {type(given).__name__}: give a list, also of one.")
    items: tuple[Any, ...] = tuple(cast("Iterable[Any]", given))
    for item in items if method else ():
        if isinstance(item, type):
            kind = item.__name__
            raise ConfigurationError(f"Agent({name}=) has the class {kind}: give an instance, {kind}(...).")
        if not hasattr(item, method):
            kind = type(item).__name__
            raise ConfigurationError(f"Agent({name}=) has a value of type {kind}, which has no {method}.")
    return items
