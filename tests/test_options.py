"""What a run may be given: input, history, names, limits, a choice of tools."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable
from typing import Any

import pytest

from glassloop import Agent, ConfigurationError, Identity, Limits, ToolDefinitionError, tool
from glassloop.core.messages import Message, Reply, Text, UserMessage
from glassloop.memory import Facts
from glassloop.middleware.stack import guard
from glassloop.models.model import ModelSettings
from glassloop.models.scripted import ScriptedModel, call
from glassloop.stores import open_store


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize("choice", ["required", "add"])
async def test_a_call_is_forced_until_one_has_been_made(choice: str) -> None:
    """agno-agi/agno#3291, openai/openai-agents-python#263: a model that must always call can never answer."""
    with ScriptedModel([call("add", a=1, b=1), "2"] * 2) as model:
        agent = Agent(model, [add], settings=ModelSettings(tool_choice=choice))
        for _ in range(2):
            assert (await agent.run("go")).output == "2"
    assert [request.settings.tool_choice for request in model.requests] == [choice, None] * 2


@pytest.mark.parametrize("who", [Identity("u" * 501), Identity(tenant="t" * 501), Identity(session="s" * 501)])
async def test_a_name_that_not_every_store_can_hold_is_refused(who: Identity) -> None:
    """langchain-ai/langgraph#6239: "index row size exceeds btree maximum", at the first run on PostgreSQL."""
    agent = Agent(ScriptedModel(["ok"]))
    with pytest.raises(ConfigurationError, match=r"has a name of 501 characters: give at most 500\."):
        await agent.run("go", identity=who)
    named = Identity("u" * 500, "t" * 500, session="s" * 500)
    assert (await agent.run("go", identity=named)).output == "ok"


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([{"role": "user", "content": "hi"}], r"history\[0\] is of type dict: .*from_openai and from_anthropic"),
        ([UserMessage("hi"), "hello"], r"history\[1\] is of type str"),
    ],
)
async def test_what_is_no_message_is_refused_before_it_is_stored(history: Any, words: str) -> None:
    store = open_store("memory:")
    with pytest.raises(ConfigurationError, match=words):
        await Agent(ScriptedModel([])).run("go", history=history, store=store)
    assert await store.journal.runs() == []


async def test_no_history_is_an_empty_one() -> None:
    """As at the first turn of a chat, which has no earlier result to go on from."""
    assert (await Agent(ScriptedModel(["ok"])).run("go", history=None)).output == "ok"


@pytest.mark.parametrize("given", [[Text("hi")], 7, {"content": "hi"}])
async def test_an_input_that_is_no_message_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="give a text, or a UserMessage"):
        await Agent(ScriptedModel([])).run(given)


@pytest.mark.parametrize("session", ["", "  ", 0, 7])
async def test_a_session_without_a_name_is_refused(session: Any) -> None:
    """letta-ai/lettabot#447: all who forget to name their conversation would share one."""
    agent = Agent(ScriptedModel([]))
    with pytest.raises(ConfigurationError, match="name the conversation, or give None"):
        await agent.run("go", session=session)
    with pytest.raises(ConfigurationError, match="name the conversation, or give None"):
        await agent.run("go", identity=Identity("ann", session=session))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sesion": "s"}, "A run has no option 'sesion'. There are: approvals, approve, deps, "),
        ({"limits": {"steps": 3}}, "limits= is of type dict: give a glassloop.Limits."),
        ({"identity": "ann"}, "identity= is of type str: give a glassloop.Identity."),
        ({"approve": "yes"}, "approve= is of type str: give a function that decides."),
        ({"store": 5}, "store= is of type int: give a URL, e.g. sqlite:///runs.db, "),
        ({"model": 5}, "The model is of type int: give provider:model, or a Model."),
    ],
)
async def test_an_option_that_is_none_is_refused_before_the_run(options: dict[str, Any], said: str) -> None:
    agent = Agent(ScriptedModel([]))
    with pytest.raises(ConfigurationError, match=f"^{re.escape(said)}"):
        await agent.run("go", **options)
    with pytest.raises(ConfigurationError, match=f"^{re.escape(said)}|^There is no run"):
        await agent.resume("run_1", **options)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tools": add}, "Agent(tools=) is of type function: give a list, also of one."),
        ({"tools": "add"}, "Agent(tools=) is of type str: give a list, also of one."),
        ({"instructions": 5}, "Agent(instructions=) is of type int: give a text, or a function of the context."),
        ({"limits": {"steps": 3}}, "Agent(limits=) is of type dict: give a glassloop.Limits."),
        ({"settings": {"temperature": 0}}, "Agent(settings=) is of type dict: give a glassloop.ModelSettings."),
        ({"memory": Facts()}, "Agent(memory=) is of type Facts: give a list, also of one."),
        ({"memory": [Facts]}, "Agent(memory=) has the class Facts: give an instance, Facts(...)."),
        ({"name": 5}, "Agent(name=) is of type int: give a text."),
    ],
)
def test_an_argument_of_another_type_is_refused_when_the_agent_is_made(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape(said)}$"):
        Agent(ScriptedModel([]), **arguments)


async def one_argument(call: Any) -> Any: ...


async def three_arguments(call: Any, next: Any, more: Any) -> Any: ...


def not_async(call: Any, next: Any) -> int:
    return 5


class NotAsync:
    def __call__(self, call: Any, next: Any) -> None: ...


class Counted:
    """Right, and counts."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, call: Any, next: Any) -> Any:
        self.calls += 1
        return await next(call)

    async def method(self, call: Any, next: Any) -> Any:
        return await self(call, next)

    async def more(self, more: int, call: Any, next: Any) -> Any:
        return await self(call, next)

    def promised(self, call: Any, next: Any) -> Awaitable[Any]:
        return self(call, next)

    def passed_on(self, call: Any, next: Any) -> Any:
        return self(call, next)

    def wrapped(self) -> Any:
        @functools.wraps(self.method)
        def wrapper(*arguments: Any) -> Any:
            return self.method(*arguments)

        return wrapper


AS_IT_SHOULD_BE = "make it async def layer(call, next)"


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (3, " has a value of type int, which has no __call__."),
        (Counted, " has the class Counted: give an instance, Counted(...)."),
        (one_argument, f": one_argument cannot be called with (call, next): {AS_IT_SHOULD_BE}."),
        (three_arguments, f": three_arguments cannot be called with (call, next): {AS_IT_SHOULD_BE}."),
        (not_async, f": not_async is not async: {AS_IT_SHOULD_BE}, with `await next(call)` in it."),
        (NotAsync(), f": NotAsync is not async: {AS_IT_SHOULD_BE}, with `await next(call)` in it."),
    ],
)
def test_a_layer_of_another_shape_is_refused_when_it_is_given(layer: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{re.escape('Agent(middleware=)' + said)}$"):
        Agent(ScriptedModel([]), middleware=[layer])
    agent = Agent(ScriptedModel([]))
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        agent.middleware = [layer]
    with pytest.raises(ConfigurationError, match=f"^{re.escape('guard(...)' + said)}$"):
        guard(add, layer)


async def test_a_layer_may_be_anything_that_is_awaited_with_a_call_and_what_comes_next() -> None:
    one = Counted()
    layers: list[Any] = [one, one.method, functools.partial(one.more, 1), one.promised, one.passed_on, one.wrapped()]
    agent = Agent(ScriptedModel([call("add", a=1, b=1), "done"]), [add], middleware=layers)
    assert ((await agent.run("go")).output, one.calls) == ("done", len(layers))


def test_a_limit_is_a_number() -> None:
    wrong: Any = "3"
    with pytest.raises(ValueError, match="must be a number more than 0"):
        Limits(steps=wrong)
    with pytest.raises(ToolDefinitionError, match="timeout must be more than 0 seconds"):
        tool(timeout=wrong)(add)


async def test_a_run_that_has_given_its_last_answer_goes_on_with_new_limits() -> None:
    store = open_store("memory:")
    with ScriptedModel([call("add", a=1, b=1), "So far: 2.", call("add", a=2, b=2), "4"]) as model:
        agent = Agent(model, [add], limits=Limits(steps=1, on_limit="answer"))
        limited = await agent.run("go", session="s", store=store)
        again = await agent.resume(limited.run_id, store=store)
        assert (again.outcome, again.output, len(model.requests)) == ("limited", "So far: 2.", 2)
        result = await agent.resume(limited.run_id, limits=Limits(steps=9), store=store)
    assert (result.outcome, result.output, result.nudges) == ("completed", "4", ("limit_raised",))
    told = model.requests[2].messages[-1]
    assert isinstance(told, UserMessage)
    assert "has been raised" in told.text
    assert [type(message).__name__ for message in await store.sessions.load("s")] == [
        *("UserMessage", "Reply", "ToolResult", "Reply", "UserMessage", "Reply", "ToolResult", "Reply")
    ]


@pytest.mark.parametrize(
    ("history", "shown"),
    [
        (["yes", "A"], ["yes", "A"]),
        (["hi", "B", "yes", "A", "yes", "C"], ["yes", "A", "hi", "B", "yes", "C"]),
        (["yes", "B"], ["yes", "A", "yes", "B"]),
        (["yes", "B", "yes"], ["yes", "A", "yes", "B", "yes"]),
    ],
)
async def test_what_a_user_says_twice_is_not_taken_for_the_same(history: list[str], shown: list[str]) -> None:
    """openai/openai-agents-python#2323: taking out of a history what its session has must leave the rest whole."""

    def message(text: str) -> Message:
        return UserMessage(text) if text.islower() else Reply((Text(text),))

    with ScriptedModel(["ok"]) as model:
        agent, store = Agent(model), open_store("memory:")
        await store.sessions.append("s", "run_before", [message("yes"), message("A")])
        await agent.run("now", session="s", history=[*map(message, history)], store=store)
    sent = model.requests[0].messages
    assert [each.text for each in sent if isinstance(each, UserMessage | Reply)] == [*shown, "now"]
