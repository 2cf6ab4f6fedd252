from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest
from typing_extensions import TypedDict, Unpack

from glassloop.core.context import RunContext
from glassloop.core.errors import ToolDefinitionError
from glassloop.tools.arguments import ArgumentsError
from glassloop.tools.tool import Tool, as_tool, tool

F = TypeVar("F", bound=Callable[..., Any])


async def use(function: Callable[..., Any] | Tool, raw: str = "{}", context: RunContext[Any] | None = None) -> Any:
    made = as_tool(function)
    return await made.invoke(made.validate(raw).kwargs, context or RunContext(None))


# Declaring


def test_the_decorator_in_its_three_forms() -> None:
    @tool
    def plain(a: int) -> int:
        """Plain."""
        return a

    @tool(effect="write", risk="high", idempotent=True, timeout=5, retries=2, sequential=True)
    def special(a: int) -> int:
        return a

    named = tool(lambda: 1, name="one", description="One.")
    assert (plain.name, plain.description, plain.effect, plain.risk, plain.retries) == (
        "plain",
        "Plain.",
        "read",
        "low",
        0,
    )
    assert (special.effect, special.risk, special.idempotent, special.sequential) == ("write", "high", True, True)
    assert (named.name, named.description) == ("one", "One.")
    assert plain(3) == 3  # still the function that it was


def test_timeouts_follow_from_the_effect() -> None:
    def go() -> None: ...

    assert tool(go).effective_timeout == 15
    assert tool(go, effect="write").effective_timeout == 60
    assert tool(go, effect="write", timeout=1.5).effective_timeout == 1.5


def test_the_spec_is_what_the_model_reads_and_is_made_once() -> None:
    @tool(name="docs.open")
    def go(a: int) -> None:
        """公告。"""

    assert go.spec is go.spec
    assert (go.spec.name, go.spec.description, go.spec.parameters) == ("docs.open", "公告。", go.parameters)
    assert go.origin.endswith(":test_the_spec_is_what_the_model_reads_and_is_made_once.<locals>.go")


@pytest.mark.parametrize(
    "options",
    [
        {"effect": "delete"},
        {"risk": "huge"},
        {"timeout": 0},
        {"timeout": -1},
        {"retries": -1},
        {"name": " a"},
        {"name": "a<|b"},
        {"colour": "red"},
    ],
)
def test_wrong_options_name_the_function(options: dict[str, Any]) -> None:
    def go() -> None: ...

    with pytest.raises(ToolDefinitionError, match="go"):
        tool(go, **options)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(ToolDefinitionError, match="name="):
        tool(lambda: 1)


def test_a_tool_is_not_decorated_twice() -> None:
    with pytest.raises(ToolDefinitionError, match="already"):
        tool(tool(lambda: 1, name="one"))


# Calling


async def test_sync_functions_run_in_a_thread_and_async_ones_in_the_loop() -> None:
    def sync() -> int:
        return threading.get_ident()

    async def asynchronous() -> int:
        return threading.get_ident()

    assert as_tool(sync).in_thread
    assert not as_tool(asynchronous).in_thread
    assert await use(sync) != threading.get_ident()
    assert await use(asynchronous) == threading.get_ident()


async def test_functions_that_hide_that_they_are_async() -> None:
    async def inner(a: int) -> int:
        return a

    @functools.wraps(inner)
    def wrapper(*args: Any, **kwargs: Any) -> Awaitable[int]:
        return inner(*args, **kwargs)

    assert await use(wrapper, '{"a": 1}') == 1
    assert await use(functools.partial(inner, a=2)) == 2
    assert await use(tool(lambda: inner(3), name="it")) == 3


async def test_callable_objects_take_name_and_description_from_their_class() -> None:
    class CityWeather:
        """Weather of a city."""

        def __init__(self, n: int) -> None:
            self.n = n

        async def __call__(self, x: int) -> int:
            return x + self.n

    made = as_tool(CityWeather(3))
    assert (made.name, made.description) == ("city_weather", "Weather of a city.")
    assert await use(made, '{"x": 1}') == 4


async def test_methods() -> None:
    class Desk:
        def __init__(self, shop: str) -> None:
            self.shop = shop

        def look_up(self, order: int) -> str:
            """Look up."""
            return f"{self.shop} {order}"

        @tool(effect="write")
        async def cancel(self, order: int) -> str:
            return f"{self.shop} cancelled {order}"

        @staticmethod
        def ping() -> str:
            return "pong"

        @classmethod
        def kind(cls) -> str:
            return cls.__name__

    desk = Desk("a")
    assert await use(desk.look_up, '{"order": 1}') == "a 1"
    assert list(desk.cancel.parameters["properties"]) == ["order"]
    assert desk.cancel.effect == "write"
    assert await use(desk.cancel, '{"order": 1}') == "a cancelled 1"
    assert await use(Desk.ping) == "pong"
    assert await use(desk.kind) == "Desk"


async def test_args_and_kwargs_become_a_list_and_an_object() -> None:
    def join(sep: str, *parts: str, **opts: int) -> str:
        return sep.join(parts) + str(sorted(opts.items()))

    properties = as_tool(join).parameters["properties"]
    assert properties["parts"] == {"type": "array", "items": {"type": "string"}}
    assert properties["opts"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert await use(join, '{"sep": "-", "parts": ["a", "b"], "opts": {"n": 1}}') == "a-b[('n', 1)]"
    assert await use(join, '{"sep": "-"}') == "[]"
    with pytest.raises(ArgumentsError, match=r"opts\.sep"):
        as_tool(join).validate('{"sep": "-", "opts": {"sep": 1}}')


async def test_positional_only_parameters_and_unpacked_options() -> None:
    class Options(TypedDict, total=False):
        loud: bool

    def go(a: int, b: int = 2, /, c: int = 3, *rest: int, d: int = 4, **options: Unpack[Options]) -> list[Any]:
        return [a, b, c, rest, d, options]

    assert await use(go, '{"a": 1}') == [1, 2, 3, (), 4, {}]
    assert await use(go, '{"a": 1, "c": 9, "rest": [7, 8], "options": {"loud": true}}') == [
        1,
        2,
        9,
        (7, 8),
        4,
        {"loud": True},
    ]


async def test_the_context_is_injected_by_name_wherever_it_stands() -> None:
    def first(ctx: RunContext[str], /, a: int) -> str:
        return f"{ctx.deps} {a}"

    def keyword(*, ctx: RunContext[str], a: int) -> str:
        return f"{ctx.deps} {a}"

    async def middle(a: int, ctx: RunContext[str] | None = None, *rest: int) -> str:
        assert ctx is not None
        return f"{ctx.deps} {a} {rest}"

    context = RunContext("deps")
    assert await use(first, '{"a": 1}', context) == "deps 1"
    assert await use(keyword, '{"a": 1}', context) == "deps 1"
    assert await use(middle, '{"a": 1, "rest": [2]}', context) == "deps 1 (2,)"


# Generators


async def test_generators_report_progress_and_give_a_list() -> None:
    def sync(n: int) -> Iterator[int]:
        yield from range(n)

    async def asynchronous(n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    async def behind_a_coroutine(n: int) -> AsyncIterator[int]:
        return asynchronous(n)

    def mapped(n: int) -> Iterator[int]:
        return map(abs, range(n))

    for function in (sync, asynchronous, behind_a_coroutine, mapped):
        told: list[int] = []
        assert await use(function, '{"n": 3}', RunContext(None, on_progress=told.append)) == [0, 1, 2]
        assert told == [0, 1, 2]


async def test_what_a_generator_returns_is_its_result() -> None:
    def work() -> Iterator[str]:
        yield "half"
        return {"rows": 2}

    assert await use(work) == {"rows": 2}


async def test_a_cancelled_generator_stops_and_is_closed() -> None:
    context, closed, begun = RunContext(None), threading.Event(), threading.Event()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
                begun.set()
        finally:
            closed.set()

    task = asyncio.create_task(use(endless, context=context))
    await asyncio.to_thread(begun.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(closed.wait, 5)


# Failing and cancelling


async def test_exceptions_pass_unchanged() -> None:
    error = KeyError("mine")

    def sync() -> None:
        raise error

    async def asynchronous() -> None:
        raise error

    for function in (sync, asynchronous):
        with pytest.raises(KeyError) as caught:
            await use(function)
        assert caught.value is error


async def test_a_tool_cannot_end_the_process() -> None:
    def sync() -> None:
        sys.exit(3)

    async def asynchronous() -> None:
        raise SystemExit

    for function in (sync, asynchronous):
        with pytest.raises(RuntimeError, match="end the process"):
            await use(function)


async def test_cancelling_cancels_async_functions_and_tells_threads() -> None:
    context, begun, went_on = RunContext(None), threading.Event(), threading.Event()

    def stubborn(ctx: RunContext) -> None:
        begun.set()
        if ctx.cancelled.wait(5):
            went_on.set()

    task = asyncio.create_task(use(stubborn, context=context))
    await asyncio.to_thread(begun.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(went_on.wait, 5)

    async def patient() -> None:
        await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(use(patient), 0.01)


# Comparing


def test_the_same_function_with_the_same_settings_is_the_same_tool() -> None:
    def go() -> None: ...

    assert as_tool(go).is_same_as(as_tool(go))
    assert not as_tool(go).is_same_as(tool(go, approval=True))
    assert not as_tool(go).is_same_as(tool(lambda: None, name="go"))


def test_renaming_leaves_the_original_alone() -> None:
    def go() -> None: ...

    made = as_tool(go)
    assert (made.renamed("other").name, made.name) == ("other", "go")
    with pytest.raises(ArgumentsError, match="other"):
        made.renamed("other").validate('{"x": 1}')
    with pytest.raises(ToolDefinitionError):
        made.renamed("")


def test_defaults_can_be_filled_in_for_keys() -> None:
    def go(q: str, limit: int = 10) -> None: ...

    made = as_tool(go)
    spelled_out, left_out = made.validate('{"limit": 10, "q": "x"}'), made.validate('{"q": "x"}')
    assert left_out.arguments == {"q": "x"}
    assert made.with_defaults(left_out.arguments) == made.with_defaults(spelled_out.arguments)
