from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from glassloop import Agent
from glassloop.core.errors import ConfigurationError, ModelError, ModelErrorKind
from glassloop.core.events import AttemptFailed
from glassloop.core.messages import UserMessage
from glassloop.models.fallback import Fallback
from glassloop.models.model import Model, ModelPart, ModelRequest, ReplyPart, TextPart, complete
from glassloop.models.scripted import ScriptedModel
from glassloop.stores import open_store

ASK = ModelRequest((UserMessage("q"),), stream=True)


def failing(kind: ModelErrorKind) -> ScriptedModel:
    return ScriptedModel([ModelError(f"{kind}!", kind=kind)], name="first")


async def test_the_first_that_answers_answers() -> None:
    first, second = ScriptedModel(["one"], name="first"), ScriptedModel(["two"], name="second")
    reply = await complete(Fallback(first, second), ASK)
    assert (reply.text, reply.model) == ("one", "first")
    assert second.requests == []


@pytest.mark.parametrize(
    "kind", ["rate_limit", "overloaded", "connection", "timeout", "protocol", "auth", "payment", "not_found"]
)
async def test_the_next_is_asked_where_one_cannot_answer(kind: ModelErrorKind) -> None:
    reply = await complete(Fallback(failing(kind), ScriptedModel(["two"], name="second")), ASK)
    assert (reply.text, reply.model) == ("two", "second")


@pytest.mark.parametrize("kind", ["invalid_request", "context_length", "bad_tool_call"])
async def test_a_request_that_is_wrong_is_not_taken_elsewhere(kind: ModelErrorKind) -> None:
    second = ScriptedModel(["two"])
    with pytest.raises(ModelError, match=f"{kind}!"):
        await complete(Fallback(failing(kind), second), ASK)
    assert second.requests == []


async def test_the_error_of_a_round_says_what_each_model_said() -> None:
    """HarperFast/harper#1537: of all that failed, the last and least telling error is left."""
    with pytest.raises(ModelError, match=r"No model answered\. first: payment! first: auth!") as caught:
        await complete(Fallback(failing("payment"), failing("auth")), ASK)
    assert caught.value.kind == "auth"


@pytest.mark.parametrize("kinds", [("overloaded", "auth"), ("auth", "overloaded"), ("overloaded", "invalid_request")])
async def test_a_round_is_worth_another_where_one_of_its_models_is(
    kinds: tuple[ModelErrorKind, ModelErrorKind],
) -> None:
    """HarperFast/harper#1537: a second model with a wrong key made the first's short outage final."""
    with pytest.raises(ModelError) as caught:
        await complete(Fallback(*map(failing, kinds)), ASK)
    assert (caught.value.kind, caught.value.retryable) == ("overloaded", True)


async def test_the_shortest_wait_that_a_server_asks_for_is_the_rounds() -> None:
    """NousResearch/hermes-agent#2642: one that asks for an hour must not hold up another that asks for a second."""
    waits = [ModelError("slow", kind="rate_limit", retry_after=wait) for wait in (1.0, 3600.0)]
    with pytest.raises(ModelError) as caught:
        await complete(Fallback(*(ScriptedModel([wait]) for wait in waits)), ASK)
    assert caught.value.retry_after == 1.0


async def test_each_model_that_failed_is_an_event() -> None:
    """mastra-ai/mastra#13991: a fallback covers a dead key for ever, and nobody is told."""
    store = open_store("memory:")
    agent = Agent(Fallback(failing("auth"), ScriptedModel(["two"], name="second")))
    result = await agent.run("q", store=store)
    events = [event.data for event in await store.journal.read(result.run_id)]
    assert [(one.model, one.kind) for one in events if isinstance(one, AttemptFailed)] == [("first", "auth")]
    assert result.output == "two"


@dataclass
class Breaking:
    """Says something and breaks off."""

    name: str = "breaking"
    closed: list[bool] = field(default_factory=list[bool])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        try:
            yield TextPart("so far")
            raise ModelError("broke", kind="connection")
        finally:
            self.closed.append(True)


async def test_nobody_else_is_asked_once_something_was_shown() -> None:
    second = ScriptedModel(["two"])
    parts = aiter(Fallback(Breaking(), second).stream(ASK))
    assert await anext(parts) == TextPart("so far")
    with pytest.raises(ModelError, match="broke"):
        await anext(parts)
    assert second.requests == []


async def test_leaving_early_closes_the_model_that_answers() -> None:
    breaking = Breaking()
    parts = Fallback(breaking, ScriptedModel([])).stream(ASK)
    async for _ in parts:
        break
    await parts.aclose()  # type: ignore[attr-defined]  # an async generator, as `Model` says by word only
    assert breaking.closed == [True]


async def test_the_same_model_twice() -> None:
    model = ScriptedModel([ModelError("x", kind="overloaded"), "two"])
    assert (await complete(Fallback(model, model), ASK)).text == "two"


def test_names_are_resolved_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    fallback = Fallback("openai:a", "anthropic:b")
    assert fallback.name == "openai:a|anthropic:b"
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        _ = fallback.models
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert [model.name for model in fallback.models] == ["openai:a", "anthropic:b"]


def test_one_model_is_no_fallback() -> None:
    with pytest.raises(ConfigurationError, match="at least two"):
        Fallback("openai:a")


async def test_it_is_a_model() -> None:
    fallback = Fallback(failing("overloaded"), ScriptedModel(["two"]))
    assert isinstance(fallback, Model)
    parts = [part async for part in fallback.stream(ASK)]
    assert isinstance(parts[-1], ReplyPart)
